//! `surehook healthcheck`: whether the gateway on this machine takes requests, for containers without a
//! shell.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::Args;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use surehook_api::ProblemBody;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::serve::ServeArgs;
use crate::{error::CliError, output, settings::Settings};

/// Larger answers do not come from a gateway.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// Check only that the process runs, not that it can take requests
    #[arg(long)]
    live: bool,
    /// Settings file [default: surehook.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    config: Option<PathBuf>,
    /// Address that the gateway listens on [default: from the settings]
    #[arg(long)]
    listen: Option<SocketAddr>,
}

pub(super) async fn run(args: &HealthcheckArgs) -> Result<(), CliError> {
    let HealthcheckArgs { live, config, listen } = args;
    let serve = ServeArgs { config: config.clone(), listen: *listen, ..ServeArgs::default() };
    let settings = Settings::load(&serve).map_err(CliError::settings)?;
    let address = local_address(settings.listen);
    let path = if *live { "/livez" } else { "/readyz" };
    let uses_tls = settings.certificate_files().is_some();
    let answer = tokio::time::timeout(TIMEOUT, ask(address, path, uses_tls)).await;
    let answer = answer.unwrap_or_else(|_| Err(anyhow!("no answer within 5 s")));
    let answer = answer.with_context(|| format!("cannot reach the gateway on {address}"));
    let answer = answer.map_err(CliError::unreachable)?;
    if answer.status().is_success() {
        return output::print_line("ok");
    }
    let problem: Option<ProblemBody> = serde_json::from_slice(answer.body()).ok();
    let detail = problem.map_or_else(|| answer.status().to_string(), |problem| problem.detail);
    Err(CliError::refused(anyhow!("not ready: {detail}")))
}

/// The address under which this machine reaches a listener.
fn local_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(address: SocketAddr, path: &str, uses_tls: bool) -> anyhow::Result<Response<Bytes>> {
    let stream = TcpStream::connect(address).await?;
    let response = if uses_tls {
        let name = ServerName::IpAddress(address.ip().into());
        get(path, tls_connector()?.connect(name, stream).await?).await?
    } else {
        get(path, stream).await?
    };
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("the answer was cut off: {error}"))?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

async fn get<S>(path: &str, stream: S) -> anyhow::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new())?;
    Ok(sender.send_request(request).await?)
}

fn tls_connector() -> anyhow::Result<TlsConnector> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Accepts every certificate. The check connects to this machine under an address that no certificate
/// names, and sends nothing that must be kept from a stranger.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
