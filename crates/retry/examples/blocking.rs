//! Retries a blocking operation: connecting to a server that is still starting up.
//!
//! ```text
//! cargo run -p surehook-retry --features blocking --example blocking
//! ```

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::{
    error::Error,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use surehook_retry::{AttemptClass, Jitter, Retrier, RetryEvent, RetryPolicy, on_error};

fn main() -> Result<(), Box<dyn Error>> {
    let policy = RetryPolicy::builder()
        .max_attempts(10)
        .initial_delay(Duration::from_millis(50))
        .max_delay(Duration::from_secs(1))
        .jitter(Jitter::Equal)
        .build()?;
    // A port that nothing listens on yet.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let classifier = on_error(|error: &io::Error| {
        // Waiting does not make these succeed.
        let is_final =
            matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::AddrNotAvailable);
        if is_final { AttemptClass::PERMANENT } else { AttemptClass::TRANSIENT }
    });
    let retrier =
        Retrier::new(policy, classifier).deadline(Duration::from_secs(10)).observer(|event| {
            if let RetryEvent::RetryScheduled { attempt, delay, .. } = event {
                println!("attempt {attempt} failed, next in {delay:?}");
            }
        });

    let mut server = None;
    let report = retrier.run_blocking(|attempt| {
        if attempt.number == 3 {
            server = Some(start_server(address)?);
        }
        ask(address, attempt.remaining.unwrap_or(Duration::from_secs(1)))
    });

    println!("{:?}", report.summary);
    println!("answer: {}", report.into_result()?);
    if let Some(server) = server {
        server.join().map_err(|_| "the server panicked")??;
    }
    Ok(())
}

fn ask(address: SocketAddr, timeout: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Answers one connection.
fn start_server(address: SocketAddr) -> io::Result<thread::JoinHandle<io::Result<()>>> {
    let listener = TcpListener::bind(address)?;
    Ok(thread::spawn(move || listener.accept()?.0.write_all(b"hello")))
}

#[test]
fn blocking_retry_example_runs_to_its_end() {
    main().unwrap();
}
