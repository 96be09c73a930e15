# needs: postgres
import os

published = []
ADDRESSES = {
    "postgresql+advisory://app@db.example/app": os.environ["INTERLOCK_DOCS_POSTGRES"].replace(
        "postgresql:", "postgresql+advisory:"
    )
}


def publish(fence):
    published.append(fence)


def check():
    assert published
