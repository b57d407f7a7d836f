//! A proxy inside the test: HTTP (CONNECT, and requests with whole URLs) and SOCKS 5, on one port.
//! It records the requested targets.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use data_encoding::BASE64;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The credentials that the proxy requires.
pub(crate) const USER: &str = "proxy user";
pub(crate) const PASSWORD: &str = "canary:p@ss";
/// The same credentials, encoded for a URL.
pub(crate) const CREDENTIALS: &str = "proxy%20user:canary%3Ap%40ss";

/// A proxy on a free port that requires credentials. Stops when dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    targets: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let targets: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = Arc::clone(&targets);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let recorded = Arc::clone(&recorded);
                // A client that disconnects ends only its own connection.
                tokio::spawn(async move { serve(stream, &recorded).await.ok() });
            }
        });
        Self { address, targets, accepting }
    }

    /// The proxy URL with valid credentials.
    pub(crate) fn url(&self, scheme: &str) -> String {
        self.url_with(scheme, CREDENTIALS)
    }

    pub(crate) fn url_with(&self, scheme: &str, credentials: &str) -> String {
        format!("{scheme}://{credentials}@{}", self.address)
    }

    /// The requested targets in order.
    pub(crate) fn received_requests(&self) -> Vec<String> {
        self.targets.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut client: TcpStream, targets: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut first = [0];
    client.peek(&mut first).await?;
    if first == [5] { socks(&mut client, targets).await } else { http(&mut client, targets).await }
}

async fn http(client: &mut TcpStream, targets: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let (line, rest) = head.split_once("\r\n").unwrap();
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    targets.lock().unwrap().push(format!("{method} {target}"));
    let proof = format!("Basic {}", BASE64.encode(format!("{USER}:{PASSWORD}").as_bytes()));
    let authorization = rest.lines().find_map(|line| line.strip_prefix("proxy-authorization: "));
    if authorization != Some(&proof) {
        let refusal = "HTTP/1.1 407 No\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n";
        return client.write_all(refusal.as_bytes()).await;
    }
    if method == "CONNECT" {
        let Ok(mut server) = TcpStream::connect(target).await else {
            return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
        };
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        return copy_bidirectional(client, &mut server).await.map(drop);
    }
    let url: url::Url = target.parse().unwrap();
    let mut server = TcpStream::connect(url.socket_addrs(|| None)?[0]).await?;
    let headers: Vec<&str> =
        rest.split("\r\n").filter(|line| !line.starts_with("proxy-authorization")).collect();
    let forwarded = format!("{method} {} HTTP/1.1\r\n{}", url.path(), headers.join("\r\n"));
    server.write_all(forwarded.as_bytes()).await?;
    copy_bidirectional(client, &mut server).await.map(drop)
}

async fn socks(client: &mut TcpStream, targets: &Mutex<Vec<String>>) -> io::Result<()> {
    let methods = read_counted(client, 1).await?;
    if !methods.contains(&2) {
        return client.write_all(&[5, 0xff]).await;
    }
    client.write_all(&[5, 2]).await?;
    let user = read_counted(client, 1).await?;
    let password = read_counted(client, 0).await?;
    if user != USER.as_bytes() || password != PASSWORD.as_bytes() {
        targets.lock().unwrap().push("SOCKS without the right password".to_owned());
        return client.write_all(&[1, 1]).await;
    }
    client.write_all(&[1, 0]).await?;
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let (kind, host) = match request[3] {
        1 => ("address", Ipv4Addr::from(client.read_u32().await?).to_string()),
        3 => ("name", String::from_utf8(read_counted(client, 0).await?).unwrap()),
        other => panic!("asked for an address of type {other}"),
    };
    let port = client.read_u16().await?;
    targets.lock().unwrap().push(format!("SOCKS {kind} {host}:{port}"));
    let server = TcpStream::connect((host, port)).await;
    let reply = if server.is_ok() { 0 } else { 5 };
    client.write_all(&[5, reply, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy_bidirectional(client, &mut server?).await.map(drop)
}

/// Skips `skip` bytes, then reads a length byte and that many bytes.
async fn read_counted(client: &mut TcpStream, skip: usize) -> io::Result<Vec<u8>> {
    let mut skipped = vec![0; skip];
    client.read_exact(&mut skipped).await?;
    let mut bytes = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
