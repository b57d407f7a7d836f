//! A TCP proxy that delays what the server answers.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream},
};

/// Forwards to `port`; every answer takes `delay` longer.
pub(crate) async fn start_slow_proxy(port: u16, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut buffer = [0; 16 * 1024];
                while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                    tokio::time::sleep(delay).await;
                    if to_client.write_all(&buffer[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}
