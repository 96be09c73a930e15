import interlock

locks = interlock.connect()
ADDRESSES = {"start_http_server(9464)": "start_http_server(0)"}
