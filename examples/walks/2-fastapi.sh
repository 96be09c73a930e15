# A web service: one at a time buys, one worker leads.
pip install "interlock[redis]" fastapi uvicorn httpx
uvicorn examples.recipes.web:app --port 8731 --log-level error & server=$!
until python -c "import httpx; print(httpx.get('http://127.0.0.1:8731/health').json())" 2>/dev/null; do sleep 0.2; done
python -c "import httpx; print(httpx.post('http://127.0.0.1:8731/buy/pen').json())"
python -c "import interlock, httpx; locks = interlock.connect(namespace='shop'); grant = locks.lock('stock:pen').acquire(); print(httpx.post('http://127.0.0.1:8731/buy/pen', timeout=9))"
kill $server; wait $server || true
