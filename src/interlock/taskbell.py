"""The import path `interlock.taskbell`; the class is `interlock.runtime.aio.TaskEvent`."""

from interlock.runtime.aio import TaskEvent as TaskBell

__all__ = ["TaskBell"]
