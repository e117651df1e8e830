from .queues import *
