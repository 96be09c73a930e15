"""What gunicorn serves."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "library.settings")

# Good enough for an example on one's own machine; a real site's web server has its static files.
application = StaticFilesHandler(get_wsgi_application())
