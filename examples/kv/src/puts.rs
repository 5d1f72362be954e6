//! Puts: a small RPC over TLS, with the certificates of the key service.
//!
//! A connection carries one put after the other: a length, a version, the key and the value; then
//! one octet says what became of it. A server reads its credentials and the policy anew for each
//! connection, which soon ends, so what is taken away ends as well. The policy of the keys says who
//! may put: ops `write` of [`PUTS`], a name under which no region is ever published.
//!
//! Puts may be repeated, as a version wins once; there is neither order nor consensus beyond that.

use core::time::Duration;
use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rma_core::{addr::HostAddr, op::OpType, time::Instant};
use rma_keys::{
    identity::SpiffeId,
    io::clock,
    ops::OpSet,
    peer::Peer,
    policy::{Ask, Authorizer, Decision, Policy, PolicyError},
    tls::{
        certificate::Certificate,
        directory::{Directory, DirectoryError},
        wall::Wall,
    },
};
use rustix::io::Errno;
use rustls::{ClientConnection, ServerConnection, StreamOwned, pki_types::ServerName};

use crate::{
    layout::{KEY_LEN_MAX, VALUE_LEN_MAX},
    store::{PutError, Store, Stored},
};

/// For whom the policy permits to write this, may put.
pub const PUTS: &str = "kv/puts";

/// The protocol that both ends name in their handshake: who speaks of keys is not understood here.
const ALPN: &[u8] = b"rma-kv-puts/1";

/// The most connections at once, each of which has a thread. More are closed at once.
const CONNECTIONS_MAX: usize = 64;

/// How long a connection lasts. Longer, and a permission that is taken away lasts longer.
pub const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// How long a handshake lasts: until it is over, the other end may be anybody.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// How long the other end may say nothing in the midst of a handshake or a put.
const PATIENCE: Duration = Duration::from_secs(2);

/// For how long no connection is taken if the process has no file or thread for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The length of a put's header: the length of all that follows this word, the version, the key's
/// length.
const HEADER_LEN: usize = 4 + 8 + 4;

/// The longest put, after its length.
const PUT_LEN_MAX: usize = HEADER_LEN - 4 + KEY_LEN_MAX + VALUE_LEN_MAX;

/// The octet that a put is answered with.
const STORED: u8 = 0;
const STALE: u8 = 1;
const FULL: u8 = 2;
const DENIED: u8 = 3;
const MALFORMED: u8 = 4;

/// The reason why a put was not done, or is not known to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutFailed {
    /// One's own credentials are not in order.
    #[error(transparent)]
    Credentials(#[from] DirectoryError),
    /// The policy is not in order.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There is no connection, or it broke.
    #[error("puts at {address}: {source}; the put may be repeated")]
    Io {
        /// Of the server.
        address: SocketAddr,
        /// The system's reason, or that of TLS.
        source: io::Error,
    },
    /// The policy does not permit it.
    #[error("{address} does not let this identity put; permit it to write {PUTS} in its policy")]
    Denied {
        /// Of the server.
        address: SocketAddr,
    },
    /// The server has no room.
    #[error("{address} has no room for it now")]
    Full {
        /// Of the server.
        address: SocketAddr,
    },
    /// The answer is none.
    #[error("{address} answers {octet}, which is no answer to a put")]
    Answer {
        /// Of the server.
        address: SocketAddr,
        /// The octet that it sent.
        octet: u8,
    },
}

/// The server that takes puts, and the policy that allows them.
#[derive(Clone, Debug)]
pub struct PutServer {
    /// The directory of the server's credentials.
    pub credentials: PathBuf,
    /// The policy of its keys.
    pub policy: PathBuf,
    /// The store that puts change.
    pub store: Arc<Mutex<Store>>,
    /// How long a connection lasts, whatever its other end does: [`CONNECTION_TIME`].
    pub connection_time: Duration,
}

impl PutServer {
    /// Takes puts, each connection's in a thread, until the process ends.
    ///
    /// # Errors
    /// If the socket breaks.
    pub fn serve(self, listener: &TcpListener) -> io::Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let (socket, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if is_exhausted(&error) => {
                    // It waits in the backlog until others have ended.
                    thread::park_timeout(ACCEPT_PAUSE);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(place) = Place::take(&open) else { continue };
            let server = self.clone();
            let serve = move || {
                let _place = place;
                if let Err(error) = server.connection(socket, from) {
                    eprintln!("kv: a connection from {from} ended: {error}");
                }
            };
            if let Err(error) = thread::Builder::new().spawn(serve) {
                eprintln!("kv: no thread for a connection from {from}: {error}");
                thread::park_timeout(ACCEPT_PAUSE);
            }
        }
    }

    fn connection(&self, socket: TcpStream, from: SocketAddr) -> Result<(), PutFailed> {
        let broken = |source| PutFailed::Io { address: from, source };
        socket.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
        socket.set_nodelay(true).map_err(broken)?;
        let began = clock::now();
        let ends = began.boot + self.connection_time;
        let until = ends.min(began.boot + HANDSHAKE_TIME);
        let mut socket = Timed { socket, until, patience: PATIENCE };
        let (_, credentials) = Directory::open(&self.credentials)?;
        let policy = fs::read_to_string(&self.policy).map_err(broken)?;
        let policy = Policy::parse(&policy)?;
        let wall = Arc::new(Wall::new());
        wall.set(began.wall);
        let mut config = (*credentials.server(&wall)).clone();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let tls = |error| broken(io::Error::other(error));
        let mut tls = ServerConnection::new(Arc::new(config)).map_err(tls)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(broken)?;
        }
        let peer = peer(&tls, from).map_err(broken)?;
        let region = PUTS.parse().expect("a name");
        let ops = OpSet::NONE.with(OpType::Write);
        let ask = Ask { peer: &peer, region: &region, ops, initiator: Some(peer.address) };
        let may_put = matches!(policy.decide(&ask, began.wall), Decision::Allowed { .. });
        socket.until = ends;
        let mut stream = StreamOwned::new(tls, socket);
        let mut put = Vec::new();
        while clock::now().boot < ends {
            let mut len = [0; 4];
            // Between puts it may rest.
            stream.sock.patience = self.connection_time;
            match stream.read_exact(&mut len) {
                Ok(()) => {}
                Err(error) if is_over(&error) => return Ok(()),
                Err(error) => return Err(broken(error)),
            }
            stream.sock.patience = PATIENCE;
            let len = u32::from_le_bytes(len) as usize;
            let answer = if len > PUT_LEN_MAX {
                MALFORMED
            } else {
                put.resize(len, 0);
                stream.read_exact(&mut put).map_err(broken)?;
                // Octets of the last read may have waited here.
                if clock::now().boot >= ends {
                    return Err(broken(over()));
                }
                if may_put { self.put(&put) } else { DENIED }
            };
            stream.write_all(&[answer]).and_then(|()| stream.flush()).map_err(broken)?;
            if answer == MALFORMED {
                break;
            }
        }
        stream.conn.send_close_notify();
        stream.flush().map_err(broken)
    }

    fn put(&self, octets: &[u8]) -> u8 {
        let Some((version, key, value)) = parse(octets) else { return MALFORMED };
        // Whoever panicked under this lock has been shown; what it left, gets can tell from values.
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        match store.put(clock::now().boot, key, value, version) {
            Ok(Stored::Yes) => STORED,
            Ok(Stored::Stale) => STALE,
            Err(PutError::Full { .. }) => FULL,
            Err(_) => MALFORMED,
        }
    }
}

/// One of the connections that there may be, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket whose reads end in time, however many octets they come in.
struct Timed {
    socket: TcpStream,
    /// When the last of them ends.
    until: Instant,
    /// How long each of them waits.
    patience: Duration,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.until.since(clock::now().boot).min(self.patience);
        if rest.is_zero() {
            return Err(over());
        }
        self.socket.set_read_timeout(Some(rest))?;
        self.socket.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.socket.write(octets)
    }

    fn write_vectored(&mut self, octets: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.socket.write_vectored(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn over() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the connection's time is over")
}

/// Whether the system has no file, or no memory, for one more connection now.
fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Whether a connection came to its end between two puts, in whatever way.
fn is_over(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
    matches!(error.kind(), ConnectionReset | TimedOut | UnexpectedEof | WouldBlock)
}

/// Returns the peer at the other end.
fn peer(tls: &ServerConnection, from: SocketAddr) -> io::Result<Peer> {
    let leaf = tls.peer_certificates().and_then(<[_]>::first);
    let leaf = leaf.ok_or_else(|| io::Error::other("it has shown no certificate"))?;
    let leaf = Certificate::read(leaf).map_err(io::Error::other)?;
    let identity = leaf.identity().map_err(io::Error::other)?;
    let address = HostAddr::from(from.ip().to_canonical());
    Ok(Peer { identity, serial: leaf.serial, not_after: leaf.not_after, address })
}

fn parse(octets: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (version, rest) = octets.split_first_chunk()?;
    let (key_len, rest) = rest.split_first_chunk()?;
    let (key, value) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
    Some((u64::from_le_bytes(*version), key, value))
}

/// The client's end: one connection to one server, made when it is needed.
#[derive(Debug)]
pub struct PutClient {
    address: SocketAddr,
    expected: SpiffeId,
    credentials: PathBuf,
    stream: Option<StreamOwned<ClientConnection, TcpStream>>,
}

impl PutClient {
    /// To the server at `address`, which proves to be `expected`, with the credentials in this
    /// directory. Does nothing yet.
    #[must_use]
    pub fn new(address: SocketAddr, expected: SpiffeId, credentials: &Path) -> Self {
        Self { address, expected, credentials: credentials.to_owned(), stream: None }
    }

    /// Puts a value, over a new connection if that from before has ended.
    ///
    /// # Errors
    /// If it is not known to be there, nor a later one.
    pub fn put(&mut self, key: &[u8], value: &[u8], version: u64) -> Result<Stored, PutFailed> {
        let mut octets = Vec::with_capacity(HEADER_LEN + key.len() + value.len());
        let len = HEADER_LEN - 4 + key.len() + value.len();
        octets.extend((len as u32).to_le_bytes());
        octets.extend(version.to_le_bytes());
        octets.extend((key.len() as u32).to_le_bytes());
        octets.extend(key);
        octets.extend(value);
        let address = self.address;
        // A connection that was there may have come to its end meanwhile.
        let kept = self.stream.take().map(|stream| self.exchange(stream, &octets));
        let answer = match kept {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => {
                let stream = self.connect()?;
                let broken = |source| PutFailed::Io { address, source };
                self.exchange(stream, &octets).map_err(broken)?
            }
        };
        match answer {
            STORED => Ok(Stored::Yes),
            STALE => Ok(Stored::Stale),
            FULL => Err(PutFailed::Full { address }),
            DENIED => Err(PutFailed::Denied { address }),
            octet => Err(PutFailed::Answer { address, octet }),
        }
    }

    fn exchange(
        &mut self,
        mut stream: StreamOwned<ClientConnection, TcpStream>,
        octets: &[u8],
    ) -> io::Result<u8> {
        stream.write_all(octets)?;
        stream.flush()?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        self.stream = Some(stream);
        Ok(answer[0])
    }

    fn connect(&self) -> Result<StreamOwned<ClientConnection, TcpStream>, PutFailed> {
        let address = self.address;
        let broken = |source| PutFailed::Io { address, source };
        let (_, credentials) = Directory::open(&self.credentials)?;
        let wall = Arc::new(Wall::new());
        wall.set(clock::now().wall);
        let mut config = (*credentials.client(&wall, self.expected.clone())).clone();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE).map_err(broken)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
        socket.set_nodelay(true).map_err(broken)?;
        let name = ServerName::IpAddress(address.ip().into());
        let tls = |error| broken(io::Error::other(error));
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(tls)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(broken)?;
        }
        Ok(StreamOwned::new(tls, socket))
    }
}
