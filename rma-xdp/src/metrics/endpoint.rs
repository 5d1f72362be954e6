//! Metrics over HTTP: `GET /metrics`, `GET /health`, and nothing else, on a thread of its own.
//!
//! It is as much of an HTTP/1.1 server as a scraper needs: one connection at a time, one request on
//! each, of bounded size and in bounded time. A client that can connect can read, and can keep
//! others waiting for [`TIMEOUT`]: the endpoint belongs on loopback or a network of the operator's,
//! and there is no TLS.
//!
//! Invariant: whatever is received, and however slowly, the thread neither panics nor waits for a
//! client for longer than [`TIMEOUT`] and twice [`LINGER`], and it ends before the endpoint's drop
//! returns.

use core::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::Arc,
};

use rma_app::{
    TscClock,
    event_fd::{EventFd, timespec},
};
use rma_core::{
    portal::Wake,
    time::{Clock, Instant},
};
use rma_shm::{Shortage, Told, Worker};
use rustix::event::{PollFd, PollFlags, poll};

use super::MetricsSource;

/// How long a client may take for its request and to take the answer. A scraper on the same network
/// needs milliseconds; longer lets an idle connection keep others waiting.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a client is listened to after the answer. One that still sends would lose the answer
/// with a connection that is closed at once (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_millis(200);

/// The longest head of a request. Scrapers send a few hundred octets.
const REQUEST_LEN_MAX: usize = 8 << 10;

/// Pause after the system could not accept a connection, as when the process has no descriptors
/// left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why an endpoint could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The address cannot be listened on.
    #[error(
        "metrics cannot be served at {address}: {source}; give an address of this host and a free TCP port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The system had no descriptor, memory or thread left.
    #[error("{what} for the metrics endpoint: {}", Told::of_thread(source))]
    System {
        /// The action that failed.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// Serves a host's metrics for Prometheus at `/metrics`, until it is dropped; and at `/health`, for
/// who asks whether it serves others: 200 if [`Metrics::is_healthy`], else 503, with
/// [`Metrics::alerts`] one a line.
///
/// [`Metrics::is_healthy`]: super::Metrics::is_healthy
/// [`Metrics::alerts`]: super::Metrics::alerts
///
/// ```no_run
/// # use rma_xdp::{Host, metrics::MetricsEndpoint};
/// # fn start(host: &Host) -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint = MetricsEndpoint::start(([127, 0, 0, 1], 9090).into(), host.metrics_source().clone())?;
/// println!("http://{}/metrics", endpoint.address());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MetricsEndpoint {
    address: SocketAddr,
    stop: Arc<Stop>,
    thread: Option<Worker>,
}

#[derive(Debug)]
struct Stop {
    wanted: AtomicBool,
    /// Rung once, never drained: a thread that goes to sleep after that wakes at once.
    wake: EventFd,
}

impl MetricsEndpoint {
    /// Listens on `address` (with port 0: on a port that the system chooses). The thread has the
    /// calling thread's CPU affinity and network namespace: start it before the caller is pinned to
    /// an engine's core.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn start(address: SocketAddr, source: MetricsSource) -> Result<Self, EndpointError> {
        let listen = |source| match Shortage::of(&source) {
            None => EndpointError::Listen { address, source },
            Some(_) => EndpointError::System { what: "making a socket", source },
        };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let wake = EventFd::open()
            .map_err(|source| EndpointError::System { what: "creating an eventfd", source })?;
        let stop = Arc::new(Stop { wanted: AtomicBool::new(false), wake });
        let server = Server { listener, source, stop: stop.clone(), clock: TscClock::new() };
        let thread = Worker::start("rma-metrics", move || server.run())
            .map_err(|source| EndpointError::System { what: "starting the thread", source })?;
        tracing::info!(%address, "metrics endpoint started");
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        self.stop.wanted.store(true, SeqCst);
        self.stop.wake.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// The state of the thread.
struct Server {
    listener: TcpListener,
    source: MetricsSource,
    stop: Arc<Stop>,
    clock: TscClock,
}

impl Server {
    fn run(self) {
        while !self.stopped() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // A client that went away, or was too slow, is its own affair.
                    let _ = self.serve(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(&self.listener, PollFlags::IN, None);
                }
                Err(_) => {
                    let paused = self.clock.now() + ACCEPT_PAUSE;
                    while !self.stopped() && self.wait_for_nothing(paused) {}
                }
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.wanted.load(SeqCst)
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let deadline = self.clock.now() + TIMEOUT;
        let mut head = [0; REQUEST_LEN_MAX];
        let response = match self.read_head(&mut stream, &mut head, deadline) {
            Ok(head) => match asked(head) {
                Ok(Page::Metrics) => self.metrics(),
                Ok(Page::Health) => self.health(),
                Err(refusal) => refusal.response(),
            },
            Err(HeadError::Refused(refusal)) => refusal.response(),
            Err(HeadError::Io(error)) => return Err(error),
        };
        // A client that was too slow is told so, if it takes that at once.
        let deadline = deadline.max(self.clock.now() + LINGER);
        self.write(&mut stream, response.as_bytes(), deadline)?;
        stream.shutdown(Shutdown::Write)?;
        let lingering = self.clock.now() + LINGER;
        // Not even a client that never stops sending holds this up.
        while self.clock.now() < lingering && self.read(&mut stream, &mut head, lingering)? > 0 {}
        Ok(())
    }

    /// The head of the request.
    fn read_head<'a>(
        &self,
        stream: &mut TcpStream,
        head: &'a mut [u8; REQUEST_LEN_MAX],
        deadline: Instant,
    ) -> Result<&'a [u8], HeadError> {
        let mut len = 0;
        loop {
            if len == head.len() {
                return Err(HeadError::Refused(Refusal::TooLong));
            }
            let got = match self.read(stream, &mut head[len..], deadline) {
                Ok(0) if len == 0 => return Err(HeadError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(0) => return Err(HeadError::Refused(Refusal::Malformed)),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Err(HeadError::Refused(Refusal::Slow));
                }
                Err(error) => return Err(HeadError::Io(error)),
            };
            // The end may have come in two pieces.
            let seen = len.saturating_sub(END.len() - 1);
            len += got;
            let end = head[seen..len].windows(END.len()).position(|it| it == END);
            if let Some(end) = end {
                return Ok(&head[..seen + end]);
            }
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        match self.source.metrics().prometheus(&mut text) {
            Ok(()) => response("200 OK", TEXT, "", &text),
            // A String takes everything.
            Err(core::fmt::Error) => response("500 Internal Server Error", PLAIN, "", ""),
        }
    }

    fn health(&self) -> String {
        let metrics = self.source.metrics();
        let lines = metrics.alerts().into_iter().map(|alert| format!("{alert}\n"));
        match metrics.is_healthy() {
            true => response("200 OK", PLAIN, "", &lines.collect::<String>()),
            false => response("503 Service Unavailable", PLAIN, "", &lines.collect::<String>()),
        }
    }

    fn read(&self, stream: &mut TcpStream, into: &mut [u8], until: Instant) -> io::Result<usize> {
        self.patiently(stream, PollFlags::IN, until, |stream| stream.read(into))
    }

    fn write(&self, stream: &mut TcpStream, mut text: &[u8], until: Instant) -> io::Result<()> {
        while !text.is_empty() {
            match self.patiently(stream, PollFlags::OUT, until, |stream| stream.write(text))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                wrote => text = &text[wrote..],
            }
        }
        Ok(())
    }

    /// Does something that may have to wait, until a deadline, or until the endpoint is dropped.
    fn patiently(
        &self,
        stream: &mut TcpStream,
        readiness: PollFlags,
        until: Instant,
        mut step: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            if self.stopped() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let now = self.clock.now();
            // A client that is ready each time still has no longer than the others.
            if now >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            match step(stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(stream, readiness, Some(until.since(now)));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Sleeps until `socket` is ready, the endpoint is dropped, or `timeout` has passed; sometimes
    /// shorter.
    fn wait(&self, socket: &impl AsFd, readiness: PollFlags, timeout: Option<Duration>) {
        let mut fds = [PollFd::new(&self.stop.wake, PollFlags::IN), PollFd::new(socket, readiness)];
        // Interrupted by a signal: the caller looks and waits again.
        let _ = poll(&mut fds, timeout.map(timespec).as_ref());
    }

    /// Sleeps until the endpoint is dropped or, at the latest, `until`. `false` if that has passed.
    fn wait_for_nothing(&self, until: Instant) -> bool {
        let left = until.since(self.clock.now());
        self.stop.wake.sleep(Some(left));
        left > Duration::ZERO
    }
}

/// The octets that end the head of a request.
const END: &[u8] = b"\r\n\r\n";

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

enum HeadError {
    Refused(Refusal),
    Io(io::Error),
}

/// A page that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Metrics,
    Health,
}

/// The reason why a request has another answer than a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Malformed,
    Method,
    NotFound,
    Slow,
    TooLong,
    Version,
}

impl Refusal {
    fn response(self) -> String {
        let (status, body) = match self {
            Self::Malformed => ("400 Bad Request", "this is no HTTP/1.1 request\n"),
            Self::Method => ("405 Method Not Allowed", "only GET\n"),
            Self::NotFound => ("404 Not Found", "only /metrics and /health are here\n"),
            Self::Slow => ("408 Request Timeout", "the request did not come in time\n"),
            Self::TooLong => ("431 Request Header Fields Too Large", "the request is too long\n"),
            Self::Version => ("505 HTTP Version Not Supported", "only HTTP/1.0 and HTTP/1.1\n"),
        };
        let allow = if self == Self::Method { "Allow: GET\r\n" } else { "" };
        response(status, PLAIN, allow, body)
    }
}

fn response(status: &str, content_type: &str, more: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\n{more}Connection: close\r\n\r\n{body}"
    )
}

/// Returns the page that a request asks for. Header fields do not matter.
fn asked(head: &[u8]) -> Result<Page, Refusal> {
    let line = head.split(|&octet| octet == b'\r').next().unwrap_or_default();
    let line = core::str::from_utf8(line).ok().filter(|line| line.is_ascii());
    let mut words = line.ok_or(Refusal::Malformed)?.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed);
    };
    let is_token = !method.is_empty() && method.bytes().all(|octet| octet.is_ascii_alphabetic());
    if !is_token || !target.starts_with('/') || !version.starts_with("HTTP/") {
        return Err(Refusal::Malformed);
    }
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return Err(Refusal::Version);
    }
    let path = target.split('?').next().unwrap_or_default();
    let page = match path {
        "/metrics" => Page::Metrics,
        "/health" => Page::Health,
        _ => return Err(Refusal::NotFound),
    };
    if method == "GET" { Ok(page) } else { Err(Refusal::Method) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_of_a_page_is_answered_with_it() {
        let line = |text: &str| asked(text.as_bytes());
        for good in [
            "GET /metrics HTTP/1.1",
            "GET /metrics HTTP/1.0\r\nHost: x\r\nAccept: */*",
            "GET /metrics?name=a HTTP/1.1\r\nHost: x",
        ] {
            assert_eq!(line(good), Ok(Page::Metrics), "{good}");
        }
        assert_eq!(line("GET /health HTTP/1.1"), Ok(Page::Health));
        for (bad, refusal) in [
            ("POST /metrics HTTP/1.1", Refusal::Method),
            ("HEAD /metrics HTTP/1.1", Refusal::Method),
            ("GET / HTTP/1.1", Refusal::NotFound),
            ("GET /metrics/../etc/passwd HTTP/1.1", Refusal::NotFound),
            ("GET /metricsx HTTP/1.1", Refusal::NotFound),
            ("POST /health HTTP/1.1", Refusal::Method),
            ("GET /metrics HTTP/2.0", Refusal::Version),
            ("GET metrics HTTP/1.1", Refusal::Malformed),
            ("GET  /metrics HTTP/1.1", Refusal::Malformed),
            ("GET /metrics", Refusal::Malformed),
            ("GET /metrics HTTP/1.1 x", Refusal::Malformed),
            ("G\u{e9}T /metrics HTTP/1.1", Refusal::Malformed),
            ("", Refusal::Malformed),
        ] {
            assert_eq!(line(bad), Err(refusal), "{bad}");
        }
        assert_eq!(asked(&[0xff; 64]), Err(Refusal::Malformed));
    }
}
