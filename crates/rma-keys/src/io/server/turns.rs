//! The loop of a service: which connections are ready, whose time is over, who comes.
//!
//! [`ServerLoop::wait`] waits, [`ServerLoop::turn`] does what can be done and never waits. What a
//! turn costs is bounded, whatever clients do: each connection has a share of it. Whoever shares
//! its thread with something that must not wait, as an engine, looks and gives it smaller turns:
//! [`ServerLoop::look`], [`ServerLoop::turn_within`].

use core::time::Duration;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use rma_core::{addr::HostAddr, shortage::Told, time::Instant};
use rustls::ServerConfig;

use crate::{
    io::{
        clock,
        link::is_exhausted,
        poller::{Interest, Poller},
        server::{
            admission::{Admission, Verdict},
            beside::{Beside, With},
            connection::{Connection, Turn},
            counters::{Limits, ServerCounters, Shared},
            handler::Handler,
            reason::EndReason,
        },
    },
    time::Now,
    tls::{
        credentials::Credentials,
        directory::{Directory, DirectoryError},
        refused::CertificateRefused,
        trust::Side,
        wall::Wall,
    },
};

/// The number of the listening socket.
const LISTENER: u64 = u64::MAX - 1;

/// How many connections one turn accepts.
const ACCEPTS_MAX: usize = 64;

/// How long no connection is accepted after the process had no more files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often people are told of certificates that were refused.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A service's loop.
pub struct ServerLoop<H> {
    listener: TcpListener,
    address: SocketAddr,
    poller: Poller,
    limits: Limits,
    wall: Arc<Wall>,
    config: Arc<ServerConfig>,
    directory: Option<Directory>,
    handler: H,
    handler_at: Option<Instant>,
    admission: Admission,
    connections: BTreeMap<u64, Place>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Those that a wait has found, or that want another turn at once.
    ready: BTreeSet<u64>,
    /// Those of them whose turn it is, before any other: nobody has a second one sooner.
    serving: VecDeque<u64>,
    next_key: u64,
    /// Connections that have ended in this turn.
    ended: Vec<u64>,
    /// Until when no connection is accepted.
    paused: Option<Instant>,
    /// When people were last told of a certificate that was refused.
    told_at: Option<Instant>,
    counters: ServerCounters,
    shared: Arc<Shared>,
}

/// A connection, and what the loop knows of it.
struct Place {
    connection: Connection<TcpStream>,
    deadline: (Instant, EndReason),
    interest: Interest,
    is_silent: bool,
    is_open: bool,
}

impl<H> core::fmt::Debug for ServerLoop<H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ServerLoop").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<H: Handler> ServerLoop<H> {
    /// A loop that accepts connections from `listener`, as whoever `credentials` are of.
    ///
    /// # Errors
    /// If the system has no more files.
    pub fn new(
        listener: TcpListener,
        credentials: &Credentials,
        handler: H,
        limits: Limits,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        let wall = Arc::new(Wall::new());
        let config = credentials.server(&wall);
        let shared = Shared {
            waker: poller.waker(),
            stops: AtomicBool::new(false),
            counters: Mutex::default(),
        };
        Ok(Self {
            listener,
            address,
            poller,
            limits,
            wall,
            config,
            directory: None,
            handler,
            handler_at: None,
            admission: Admission::new(limits.places),
            connections: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ready: BTreeSet::new(),
            serving: VecDeque::new(),
            next_key: 0,
            ended: Vec::new(),
            paused: None,
            told_at: None,
            counters: ServerCounters::default(),
            shared: Arc::new(shared),
        })
    }

    /// The same, with credentials in the directory `path`, which are read anew when they change.
    ///
    /// # Errors
    /// As [`Directory::open`] and [`Self::new`]; and if clients would not take the certificate now.
    pub fn from_directory(
        listener: TcpListener,
        path: &Path,
        handler: H,
        limits: Limits,
    ) -> Result<Self, StartError> {
        let (directory, credentials) = Directory::open(path)?;
        StartError::judge(path, &credentials, Side::Server)?;
        let new = Self::new(listener, &credentials, handler, limits)?;
        Ok(Self { directory: Some(directory), ..new })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(in crate::io) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Returns the counters of its connections.
    #[must_use]
    pub const fn counters(&self) -> ServerCounters {
        self.counters
    }

    /// How many connections there are, handshakes with them.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Waits until there is something to do, or it is time to.
    pub fn wait(&mut self, now: Instant) {
        self.wait_for(now, WAIT_MAX);
    }

    /// The same, for no longer than `most`.
    pub fn wait_for(&mut self, now: Instant, most: Duration) {
        let at = [
            self.deadlines.first().map(|it| it.0),
            self.directory.as_ref().and_then(Directory::poll_timeout),
            self.handler_at,
            self.paused,
        ];
        let until = at.into_iter().flatten().map(|it| it.since(now));
        let most = until.min().unwrap_or(WAIT_MAX).min(WAIT_MAX).min(most);
        let is_idle = self.ready.is_empty() && self.serving.is_empty();
        self.find(if is_idle { most } else { Duration::ZERO });
    }

    /// Finds what there is to do, without waiting for it.
    pub fn look(&mut self) {
        self.find(Duration::ZERO);
    }

    fn find(&mut self, most: Duration) {
        match self.poller.wait(most) {
            Ok(keys) => self.ready.extend(keys),
            Err(error) => tracing::error!(%error, "the key service cannot wait for its sockets"),
        }
    }

    /// Does what can be done now.
    pub fn turn(&mut self, now: Now) {
        self.turn_within(now, usize::MAX);
    }

    /// [`Self::turn`] that serves so many connections at most. The others come first in the next
    /// one, whatever is found until then.
    pub fn turn_within(&mut self, now: Now, connections: usize) {
        self.turn_beside(now, connections, &mut ());
    }

    /// The same, with somebody who answers what is none of the service's own.
    pub fn turn_beside(&mut self, now: Now, connections: usize, beside: &mut dyn Beside) {
        self.wall.set(now.wall);
        self.reload(now);
        self.handler_at = self.handler.poll(now);
        while let Some(&(at, key)) = self.deadlines.first()
            && at <= now.boot
        {
            let reason = self.connections[&key].deadline.1;
            self.end(key, reason);
        }
        if self.paused.is_some_and(|until| until <= now.boot) {
            self.paused = None;
            self.listen(Interest::Read);
        }
        if self.serving.is_empty() {
            self.line_up();
        }
        for _ in 0..connections {
            match self.serving.pop_front() {
                None => break,
                Some(LISTENER) if self.paused.is_none() => self.accept(now),
                Some(LISTENER) => {}
                Some(key) => self.serve(now, key, beside),
            }
        }
        self.ended.drain(..).for_each(|key| beside.ended(key));
        *self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner) = self.counters;
    }

    /// Open connections first: who has proved who he is does not wait for strangers. New ones last.
    fn line_up(&mut self) {
        let ready = core::mem::take(&mut self.ready);
        let is_open = |key: &u64| self.connections.get(key).is_some_and(|it| it.is_open);
        let (open, others): (Vec<u64>, Vec<u64>) = ready.into_iter().partition(is_open);
        self.serving.extend(open.into_iter().chain(others));
    }

    fn reload(&mut self, now: Now) {
        match self.directory.as_mut().and_then(|it| it.poll(now.boot)) {
            None => {}
            Some(Ok(credentials)) => {
                self.counters.reloaded += 1;
                self.config = credentials.server(&self.wall);
                if let Err(why) = credentials.verify(Side::Server, now.wall) {
                    tracing::warn!(%why, "clients will not take the key service's new certificate");
                }
                tracing::info!(
                    identity = %credentials.identity(), not_after = %credentials.not_after(),
                    "new credentials of the key service"
                );
            }
            Some(Err(error)) => {
                self.counters.not_reloaded += 1;
                tracing::warn!(%error, "the key service goes on with its old credentials");
            }
        }
    }

    fn listen(&self, interest: Interest) {
        if let Err(error) = self.poller.modify(&self.listener, LISTENER, interest) {
            tracing::error!(%error, "the key service cannot wait for connections");
        }
    }

    fn accept(&mut self, now: Now) {
        for _ in 0..ACCEPTS_MAX {
            let (socket, address) = match self.listener.accept() {
                Ok((socket, address)) => (socket, HostAddr::from(address.ip().to_canonical())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_exhausted(&error) => {
                    self.counters.not_accepted += 1;
                    if let Some(key) = self.admission.silent(now.boot, None) {
                        self.end(key, EndReason::Silent);
                    }
                    self.paused = Some(now.boot + ACCEPT_PAUSE);
                    return self.listen(Interest::Nothing);
                }
                // It was gone before it was taken.
                Err(_) => continue,
            };
            self.counters.accepted += 1;
            match self.admission.judge(now.boot, address) {
                Verdict::Admit => {}
                Verdict::InPlaceOf(key, reason) => self.end(key, reason),
                Verdict::Refuse(reason) => {
                    self.counters.count(reason);
                    continue;
                }
            }
            let key = self.next_key;
            let is_set = socket.set_nonblocking(true).and(socket.set_nodelay(true));
            if is_set.and(self.poller.add(&socket, key, Interest::Read)).is_err() {
                self.counters.count(EndReason::Lost);
                continue;
            }
            self.next_key += 1;
            self.admission.enter(now.boot, key, address);
            let connection = Connection::new(now.boot, socket, address);
            let deadline = connection.deadline(&self.limits.times);
            self.deadlines.insert((deadline.0, key));
            let interest = Interest::Read;
            let place = Place { connection, deadline, interest, is_silent: true, is_open: false };
            self.connections.insert(key, place);
        }
        // There may be more.
        self.ready.insert(LISTENER);
    }

    fn serve(&mut self, now: Now, key: u64, beside: &mut dyn Beside) {
        // It may have ended since it was found ready.
        let Some(place) = self.connections.get_mut(&key) else { return };
        let connection = &mut place.connection;
        let before = connection.messages;
        let mut handler = With { handler: &mut self.handler, beside, connection: key };
        let turn = connection.turn(now, &self.config, &mut handler);
        self.counters.messages += connection.messages - before;
        if place.is_silent && !connection.is_silent() {
            place.is_silent = false;
            self.admission.speaks(key);
        }
        let opens = !place.is_open && connection.peer().is_some();
        if opens {
            place.is_open = true;
            self.counters.handshakes += 1;
        }
        if opens || connection.messages > before {
            self.admission.rests(now.boot, key);
        }
        let turn = match turn {
            Ok(turn) => turn,
            Err(reason) => {
                self.tell(now, key);
                return self.end(key, reason);
            }
        };
        let deadline = connection.deadline(&self.limits.times);
        if deadline != place.deadline {
            self.deadlines.remove(&(place.deadline.0, key));
            self.deadlines.insert((deadline.0, key));
            place.deadline = deadline;
        }
        match turn {
            Turn::Again => _ = self.ready.insert(key),
            Turn::Waits(interest) if interest == place.interest => {}
            Turn::Waits(interest) => {
                place.interest = interest;
                if self.poller.modify(&connection.socket, key, interest).is_err() {
                    self.end(key, EndReason::Lost);
                }
            }
        }
    }

    /// Tells people why a certificate was refused, with the dates, as its holder learns no more
    /// than that it was: often it is a clock, or a file, of either side that is wrong. Strangers
    /// can have it said once a second.
    fn tell(&mut self, now: Now, key: u64) {
        let Some(Place { connection, .. }) = self.connections.get_mut(&key) else { return };
        let Some(why) = connection.refused.take() else { return };
        if self.told_at.is_none_or(|at| now.boot.since(at) >= TELL_EVERY) {
            self.told_at = Some(now.boot);
            let address = connection.address;
            tracing::warn!(%address, %why, "the key service refused a certificate");
        }
    }

    fn end(&mut self, key: u64, reason: EndReason) {
        let Some(mut place) = self.connections.remove(&key) else { return };
        let connection = &mut place.connection;
        connection.close();
        self.deadlines.remove(&(place.deadline.0, key));
        self.admission.leave(key);
        self.ended.push(key);
        self.counters.count(reason);
        let identity = connection.peer().map(|it| it.identity.as_str());
        tracing::debug!(
            address = %connection.address, identity, reason = reason.name(), "a connection ended"
        );
    }
}

/// The reason why a service, or a client, cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its credentials are not in order.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Others will not take its certificate, as it has ended, for example.
    #[error("{}: {why}", path.display())]
    Certificate {
        /// The certificate's file.
        path: PathBuf,
        /// The reason.
        why: Box<CertificateRefused>,
    },
    /// The system refuses it a socket.
    #[error("the key service gets no socket: {}", Told::of(.0))]
    Socket(#[from] io::Error),
    /// There is no thread for it.
    #[error("no thread for the key service: {}", Told::of_thread(.0))]
    Thread(io::Error),
    /// The kernel gives no random octets.
    #[error("the kernel gives no random octets: {0}")]
    Random(io::Error),
}

impl StartError {
    /// Looks at one's own certificate as the other end will, by this machine's clock.
    pub(in crate::io) fn judge(
        directory: &Path,
        credentials: &Credentials,
        side: Side,
    ) -> Result<(), Self> {
        credentials.verify(side, clock::now().wall).map_err(|why| {
            let (path, why) = (directory.join("cert.pem"), Box::new(why));
            Self::Certificate { path, why }
        })
    }
}
