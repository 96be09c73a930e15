"""What tests are made of: the model checker, and the contract that every store must keep."""
