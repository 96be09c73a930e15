# A task must be done once.
pip install "interlock[redis]" "celery[redis]"
celery -A examples.recipes.celery_once worker --concurrency=2 --loglevel=error 2>/dev/null >/dev/null & worker=$!
python -c "from examples.recipes.celery_once import *; print([each.get(timeout=60) for each in [pay.delay('7'), pay.delay('7')]])"
python -c "from examples.recipes.celery_once import *; lock = locks.lock('report:11').acquire(); print(report.delay('11').get(timeout=60))"
kill $worker; wait $worker || true
