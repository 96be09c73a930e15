"""Settings of the library site; the environment variables LIBRARY_* choose what is to be tried out.

LIBRARY_PROTECTION: none, guarded or occupy (the default); see `catalogue.protection`.
LIBRARY_DATABASE: sqlite (the default); postgresql, which PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE find; or
    mariadb, which MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_USER, MYSQL_PWD and MYSQL_DATABASE find.
LIBRARY_LOCKS: where the locks are, such as redis://127.0.0.1; by default they are in the database.
LIBRARY_THINKING_TIME: milliseconds between reading and writing, 0 by default; see `catalogue.thinking`.
LIBRARY_DATA: the folder of the SQLite files and of the secret key.
"""

import os
import secrets
from pathlib import Path

import django
from django.core.exceptions import ImproperlyConfigured

BASE = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("LIBRARY_DATA", BASE / "data"))
DATA.mkdir(mode=0o700, parents=True, exist_ok=True)


def choice(variable: str, *known: str) -> str:
    """Return what an environment variable chooses; the first choice is the default."""
    chosen = os.environ.get(variable, known[0])
    if chosen not in known:
        raise ImproperlyConfigured(f"{variable} is one of {', '.join(known)}, not {chosen!r}")
    return chosen


def number(variable: str) -> float:
    """Return the number in an environment variable; 0 if there is none."""
    given = os.environ.get(variable, "0")
    try:
        return float(given)
    except ValueError:
        raise ImproperlyConfigured(f"{variable} is a number, not {given!r}") from None


def secret_key() -> str:
    """Return the key that signs sessions, made when the site is first used."""
    file = DATA / "secret-key"
    if not file.exists():
        made = DATA / f"secret-key.{os.getpid()}"
        made.write_text(secrets.token_urlsafe(48))
        made.rename(file)
    return file.read_text()


def sqlite(name: str) -> dict[str, object]:
    """Return the settings of a SQLite file that several processes write."""
    options: dict[str, object] = {"timeout": 20}
    if django.VERSION >= (5, 1):
        # A transaction that begins by reading could not become one that writes while another writes.
        options |= {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA synchronous = NORMAL"}
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATA / f"{name}.sqlite3",
        "OPTIONS": options,
        "CONN_MAX_AGE": 600,  # seconds
        "TEST": {"NAME": DATA / f"test-{name}.sqlite3"},
    }


def postgresql() -> dict[str, object]:
    """Return the settings of PostgreSQL, by the variables that its own programs heed."""
    found = {key: os.environ.get(f"PG{key}", "") for key in ("HOST", "PORT", "USER", "PASSWORD")}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "library"),
        "CONN_MAX_AGE": 600,  # seconds
        **found,
    }


def mariadb() -> dict[str, object]:
    """Return the settings of MariaDB or MySQL, by the variables that their own programs and images heed."""
    import pymysql  # needs no compiler, as mysqlclient does

    pymysql.install_as_MySQLdb()
    return {
        "ENGINE": "django.db.backends.mysql",
        "HOST": os.environ.get("MYSQL_HOST", ""),
        "PORT": os.environ.get("MYSQL_TCP_PORT", ""),
        "USER": os.environ.get("MYSQL_USER", ""),
        "PASSWORD": os.environ.get("MYSQL_PWD", ""),
        "NAME": os.environ.get("MYSQL_DATABASE", "library"),
        "CONN_MAX_AGE": 600,  # seconds
    }


PROTECTION = choice("LIBRARY_PROTECTION", "occupy", "guarded", "none")
DATABASE = choice("LIBRARY_DATABASE", "sqlite", "postgresql", "mariadb")
LOCKS = os.environ.get("LIBRARY_LOCKS")
THINKING_TIME = number("LIBRARY_THINKING_TIME") / 1000  # seconds

INTERLOCK: dict[str, dict[str, str]] = {}
if DATABASE == "postgresql":
    DATABASES = {"default": postgresql()}
elif DATABASE == "mariadb":
    DATABASES = {"default": mariadb()}
else:
    # SQLite has one writer per file: the claims have a file of their own, so that loans and locks don't wait in turn.
    DATABASES = {"default": sqlite("library"), "locks": sqlite("locks")}
    INTERLOCK = {"default": {"ALIAS": "locks"}}
    DATABASE_ROUTERS = ["library.routers.LocksApart"]
if LOCKS:
    INTERLOCK = {"default": {"LOCATION": LOCKS, "NAMESPACE": "library"}}

SECRET_KEY = secret_key()
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", "testserver"]
ROOT_URLCONF = "library.urls"
WSGI_APPLICATION = "library.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "books"
STATIC_URL = "static/"
TIME_ZONE = "UTC"
USE_TZ = True

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    "interlock.django",
    "catalogue",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {
        "django": {"handlers": ["stderr"], "level": "ERROR"},
        "interlock": {"handlers": ["stderr"], "level": "WARNING"},
    },
}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.PageNumberPagination",
    "PAGE_SIZE": 50,
    "EXCEPTION_HANDLER": "catalogue.api.answer",
}
