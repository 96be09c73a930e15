# A job of cron must not overlap itself.
pip install "interlock[cli]"
interlock run -n nightly -- echo "the job has run"
interlock run nightly -- sleep 4 &
sleep 1
interlock ls
interlock show nightly
interlock run -n nightly -- echo "never" || echo "status $?: somebody has it"
interlock run -w 10 nightly -- echo "waited, and had my turn"
interlock doctor
