"""What is built on locks: run once, leader election, detached grants, one lock of several."""
