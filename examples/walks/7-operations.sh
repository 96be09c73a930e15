# Check the store, list the holders, evict one that is dead.
pip install "interlock[cli,redis]"
interlock doctor
interlock run deploy -- sleep 60 & stuck=$!
sleep 1
interlock ls --json
kill -9 $stuck
interlock evict --yes deploy
interlock run -n deploy -- echo "free again"
