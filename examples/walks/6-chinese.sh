# 第一把锁 (docs/zh/first-lock.md)
pip install "interlock[cli]"
python -c "import interlock; locks = interlock.connect(); grant = locks.lock('图书:一号', timeout=5).acquire(); print(grant.name, grant.held); grant.release()"
interlock run "图书:一号" -- sleep 5 &
sleep 1
interlock ls
interlock show "图书:一号"
wait
