//! Captures by a Unix socket, for whoever runs as the same user, or as root.
//!
//! A client sends `capture 1 SNAP` and a line feed, is answered `ok` or `no: REASON` and a line
//! feed, and after `ok` gets a pcapng file. It ends the capture by closing its sending side, and
//! then gets the rest. The name of the socket is the process's number, and `.sock`.
//!
//! Invariant: one thread serves, and waits for no client longer than [`PATIENCE`].

use core::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rma_app::event_fd::{EventFd, timespec};
use rma_core::portal::Wake;
use rma_shm::{Told, Worker};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::sockopt::socket_peercred,
    process::geteuid,
};

use super::{Capture, CaptureConfig, CaptureSource};

/// The directory of the sockets, if no other is named.
pub const DIRECTORY: &str = "/run/1rma";

/// How long a client may take to ask, and to take the end of what it has ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a writer that waits for its client looks whether it should go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The longest request.
const REQUEST_LEN_MAX: usize = 64;

/// How many sockets a process may have.
const SOCKETS_MAX: u32 = 32;

/// The reason why captures cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureEndpointError {
    /// The socket cannot be made.
    #[error(
        "captures cannot be served at {}: {source}; name a directory that this user may write to",
        path.display()
    )]
    Listen {
        /// The path for the socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system had no descriptor or thread left.
    #[error("{what} for captures: {}", Told::of_thread(source))]
    System {
        /// The action that failed.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// Serves captures of a host by a Unix socket of mode 0600, until it is dropped.
///
/// ```
/// # use rma_xdp::{Host, HostConfig, capture::CaptureEndpoint};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::open(HostConfig::udp([127, 0, 0, 36]))?;
/// # let directory = std::env::temp_dir();
/// // or &Path::new(rma_xdp::capture::DIRECTORY)
/// let endpoint = CaptureEndpoint::start(&directory, host.capture_source().clone())?;
/// println!("rma-bench capture {}", endpoint.path().display());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CaptureEndpoint {
    path: PathBuf,
    stop: Arc<Stop>,
    thread: Option<Worker>,
}

#[derive(Debug)]
struct Stop {
    wanted: AtomicBool,
    wake: EventFd,
}

impl CaptureEndpoint {
    /// Makes the directory, if it is not there, and a socket in it. The threads have the calling
    /// thread's CPU affinity.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn start(directory: &Path, source: CaptureSource) -> Result<Self, CaptureEndpointError> {
        let (listener, path) = listen(directory)?;
        let refuse = |source| CaptureEndpointError::Listen { path: path.clone(), source };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let wake = EventFd::open().map_err(|source| CaptureEndpointError::System {
            what: "creating an eventfd",
            source,
        })?;
        let stop = Arc::new(Stop { wanted: AtomicBool::new(false), wake });
        let mut server = Server { listener, source, stop: stop.clone(), active: None };
        let thread = Worker::start("rma-captures", move || server.run()).map_err(|source| {
            CaptureEndpointError::System { what: "starting the thread", source }
        })?;
        tracing::info!(path = %path.display(), "captures are served");
        Ok(Self { path, stop, thread: Some(thread) })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for CaptureEndpoint {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take().filter(Worker::is_ours) else { return };
        self.stop.wanted.store(true, SeqCst);
        self.stop.wake.wake();
        thread.join();
        // Nobody is harmed by one that stays: it refuses whoever connects.
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens at the first name of this process that is free, or that a dead one has left.
fn listen(directory: &Path) -> Result<(UnixListener, PathBuf), CaptureEndpointError> {
    let refuse = |path: &Path, source| CaptureEndpointError::Listen { path: path.into(), source };
    fs::create_dir_all(directory).map_err(|source| refuse(directory, source))?;
    let id = std::process::id();
    let mut last = ErrorKind::AddrInUse.into();
    for number in 0..SOCKETS_MAX {
        let name = if number == 0 { format!("{id}.sock") } else { format!("{id}-{number}.sock") };
        let path = directory.join(name);
        match UnixListener::bind(&path) {
            Ok(listener) => return Ok((listener, path)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(refuse(&path, error)),
        }
        let is_left = UnixStream::connect(&path)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if is_left && fs::remove_file(&path).is_ok() {
            return UnixListener::bind(&path)
                .map(|listener| (listener, path.clone()))
                .map_err(|source| refuse(&path, source));
        }
    }
    Err(refuse(directory, last))
}

struct Server {
    listener: UnixListener,
    source: CaptureSource,
    stop: Arc<Stop>,
    active: Option<(Capture, UnixStream)>,
}

impl Server {
    fn run(&mut self) {
        while !self.stop.wanted.load(SeqCst) {
            match self.listener.accept() {
                // A client that went away is its own affair.
                Ok((stream, _)) => drop(self.serve(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                // No descriptors left: they may come.
                Err(_) => self.stop.wake.sleep(Some(LOOK_EVERY)),
            }
            self.end_what_is_over();
        }
        self.active = None;
    }

    /// Sleeps until somebody connects, or the client that captures has something to say.
    fn wait(&self) {
        let mut fds = vec![
            PollFd::new(&self.stop.wake, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        if let Some((_, client)) = &self.active {
            fds.push(PollFd::new(client, PollFlags::IN | PollFlags::RDHUP));
        }
        let most = self.active.is_some().then(|| timespec(LOOK_EVERY));
        // Interrupted by a signal: the caller looks and waits again.
        let _ = poll(&mut fds, most.as_ref());
    }

    /// Ends the capture whose client wants no more of it, or that cannot be written.
    fn end_what_is_over(&mut self) {
        let Some((capture, client)) = &mut self.active else { return };
        let wants_more = matches!(client.read(&mut [0; REQUEST_LEN_MAX]),
            Err(error) if error.kind() == ErrorKind::WouldBlock);
        if (capture.is_over() || !wants_more)
            && let Some((capture, client)) = self.active.take()
        {
            // Told by the writer already.
            let _ = capture.finish();
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    fn serve(&mut self, mut stream: UnixStream) -> io::Result<()> {
        let peer = socket_peercred(stream.as_fd())?;
        let (user, pid) = (peer.uid, peer.pid);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if user != geteuid() && !user.is_root() {
            return writeln!(stream, "no: this host belongs to another user; run it with sudo");
        }
        let Some(snap) = request(&mut stream)? else {
            return writeln!(
                stream,
                "no: this host does not know that request; its version is {}",
                env!("CARGO_PKG_VERSION")
            );
        };
        stream.set_nonblocking(true)?;
        let out = Client { stream: stream.try_clone()?, stop: self.stop.clone(), greeted: false };
        let holder = format!("process {} of user {}", pid.as_raw_nonzero(), user.as_raw());
        match self.source.start(out, CaptureConfig { snap, holder }) {
            Ok(capture) => {
                self.active = Some((capture, stream));
                Ok(())
            }
            Err(error) => writeln!(stream, "no: {error}"),
        }
    }
}

/// The snap length that a client asks for. `None` if it asks for something else.
fn request(stream: &mut UnixStream) -> io::Result<Option<usize>> {
    let (mut request, mut len) = ([0; REQUEST_LEN_MAX], 0);
    while len < request.len() && !request[..len].ends_with(b"\n") {
        match stream.read(&mut request[len..])? {
            0 => return Ok(None),
            count => len += count,
        }
    }
    let text = core::str::from_utf8(&request[..len]).ok();
    let snap = text.and_then(|it| it.strip_prefix("capture 1 ")?.strip_suffix('\n')?.parse().ok());
    Ok(snap)
}

/// The client of a capture, as what is captured is written to.
struct Client {
    stream: UnixStream,
    stop: Arc<Stop>,
    greeted: bool,
}

impl Client {
    fn send(&mut self, octets: &[u8]) -> io::Result<usize> {
        let mut patience = PATIENCE;
        loop {
            match self.stream.write(octets) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                sent => return sent,
            }
            let mut fds = [PollFd::new(&self.stream, PollFlags::OUT)];
            let ready = poll(&mut fds, Some(&timespec(LOOK_EVERY)));
            // A client that is stopped is waited for, as long as it has not ended the capture and
            // the host is there.
            let is_waited_for = !self.stop.wanted.load(SeqCst) && !self.has_ended();
            if !is_waited_for && !ready.is_ok_and(|count| count > 0) {
                patience = patience.saturating_sub(LOOK_EVERY);
                if patience.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        poll(&mut fds, Some(&timespec(Duration::ZERO))).is_ok_and(|count| count > 0)
    }
}

impl Write for Client {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        if !self.greeted {
            self.send(b"ok\n")?;
            self.greeted = true;
        }
        self.send(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
