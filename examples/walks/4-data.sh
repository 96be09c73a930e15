# Processes of several pools write one file.
pip install interlock joblib
python -m examples.recipes.pool
