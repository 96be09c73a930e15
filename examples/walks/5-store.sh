# A store of one's own, from the page, judged by the contract.
pip install "interlock[testing]" pytest-xdist
python -c "import re; page = open('docs/howto/third-party-store.md').read(); store, judge = re.findall(r'\`\`\`python\n(.*?)\`\`\`', page, re.S); open('toy_store.py', 'w').write(store); open('test_toy.py', 'w').write(judge)"
pytest -q -n 2 -k "exclude" test_toy.py | tail -1
