import interlock
