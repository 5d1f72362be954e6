//! One service: its connection, and who waits for its answers.
//!
//! One request is under way at a time, the others stand in a queue. If the connection breaks, that
//! request goes first on the next one, as asking twice does nothing twice. A reply says which
//! request it is to: one to another came late, or twice, and is left aside. Time is an
//! argument.
//!
//! A connection is for one address, that which keys are asked for, and is made from there where it
//! can be: a service gives keys to who connects. A request for another address waits for a
//! connection of its own.

use core::time::Duration;
use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    time::Instant,
};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt::socket_error,
    },
};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};

use crate::{
    identity::SpiffeId,
    io::{
        client::{
            backoff::Backoff,
            fetch::{FetchError, Slot},
            fetcher::Seen,
            hindrance::Hindrance,
        },
        link::Link,
        poller::{Interest, Poller},
    },
    message::{self, reply::Reply},
    secret::Octets,
    tls::ALPN,
};

/// How long a connection and its handshake may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// How long a connection may take that is made from the address that keys are asked for. The way
/// back to that may be another, or none: then it is made from whatever the kernel chooses. Shorter
/// than two retransmissions of a SYN, and a lost one takes the address away.
const BOUND_TIME: Duration = Duration::from_millis(3500);

/// For how long an address that no connection could be made from is not tried again. Longer: what
/// was in the way for a moment is for longer. Shorter: where it stays, requests wait for
/// [`BOUND_TIME`] more often.
const UNBOUND_FOR: Duration = Duration::from_secs(300);

/// How long a reply may take before the connection is taken for broken.
const REPLY_TIME: Duration = Duration::from_secs(5);

/// How long a connection is kept that nobody uses: less than services keep one.
const IDLE_TIME: Duration = Duration::from_secs(100);

/// How many replies that nobody waits for come over one connection, between two that somebody does.
/// More, and a service that sends nothing else keeps its client busy; fewer, and one that repeats
/// itself costs a connection.
const UNASKED_MAX: u32 = 16;

/// How many fetches wait for one service.
const WAITING_MAX: usize = 4096;

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: u32,
    pub(super) message: Octets,
    /// The initiators that keys are asked for.
    pub(super) from: LocalAddresses,
    pub(super) deadline: Instant,
    pub(super) slot: Slot,
}

/// A service, and what it is asked.
#[derive(Debug)]
pub(super) struct Source {
    key: u64,
    /// The settings of its connections.
    pub(super) config: Arc<ClientConfig>,
    addresses: Vec<SocketAddr>,
    /// The index of the address that is tried.
    address: usize,
    pub(super) expected: SpiffeId,
    waiting: VecDeque<Job>,
    state: State,
    backoff: Backoff,
    last: Hindrance,
    /// At which address `last` was.
    last_at: Option<SocketAddr>,
    /// An address that keys are asked for and that no connection could be made from.
    unbound: Option<Unbound>,
    /// From which address the last one was.
    from: Option<HostAddr>,
    /// How often an open connection broke.
    lost: u64,
    /// How many replies came that nobody waited for.
    unasked: u64,
}

/// No connection is made from an address until then.
#[derive(Clone, Copy, Debug)]
struct Unbound {
    address: HostAddr,
    until: Instant,
}

#[derive(Debug)]
enum State {
    /// No connection, until one is wanted.
    Idle,
    /// No connection until then.
    Pause(Instant),
    Connected(Box<Connection>),
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    link: Link,
    interest: Interest,
    /// The address that keys are asked for, if it could be one of a connection to that service.
    wanted: Option<HostAddr>,
    /// Whether it is made from there.
    is_bound: bool,
    /// Whether TCP is connected, and TLS after it.
    is_connected: bool,
    is_open: bool,
    asked: Option<Job>,
    /// How many replies have come since the last that was waited for.
    unasked: u32,
    /// When it is taken for broken, or for useless.
    deadline: Instant,
}

/// The means of the loop that a source needs.
pub(super) struct Means<'a> {
    pub(super) poller: &'a Poller,
    pub(super) random: u64,
}

impl Source {
    pub(super) const fn new(
        key: u64,
        config: Arc<ClientConfig>,
        addresses: Vec<SocketAddr>,
        expected: SpiffeId,
    ) -> Self {
        Self {
            key,
            config,
            addresses,
            address: 0,
            expected,
            waiting: VecDeque::new(),
            state: State::Idle,
            backoff: Backoff(0),
            last: Hindrance::Waiting,
            last_at: None,
            unbound: None,
            from: None,
            lost: 0,
            unasked: 0,
        }
    }

    /// Returns the state that it shows to other threads.
    pub(super) fn seen(&self) -> Seen {
        let hindrance = self.last_at.map(|at| (at, self.last.clone()));
        let Self { lost, unasked, address, from, .. } = *self;
        Seen { lost, unasked, address, hindrance, from }
    }

    pub(super) fn ask(&mut self, job: Job) {
        if self.waiting.len() >= WAITING_MAX {
            return job.slot.give(Err(FetchError::Full { expected: self.expected.clone() }));
        }
        self.waiting.push_back(job);
    }

    /// It need not wait before it connects again.
    pub(super) fn hurry(&mut self, now: Instant) {
        if matches!(self.state, State::Pause(_)) {
            self.state = State::Pause(now);
        }
    }

    /// When it wants a turn even if nothing happens.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let jobs = self.waiting.iter().map(|job| job.deadline).min();
        let own = match &self.state {
            State::Idle => None,
            State::Pause(until) => (!self.waiting.is_empty()).then_some(*until),
            State::Connected(connection) => {
                let asked = connection.asked.as_ref().map(|job| job.deadline);
                Some(asked.map_or(connection.deadline, |it| it.min(connection.deadline)))
            }
        };
        jobs.into_iter().chain(own).min()
    }

    /// Goes on as far as can be.
    pub(super) fn turn(&mut self, now: Instant, means: &Means<'_>) {
        self.give_up(now);
        if let State::Pause(until) = self.state
            && until <= now
        {
            self.state = State::Idle;
        }
        if matches!(self.state, State::Idle) && !self.waiting.is_empty() {
            match self.connect(now, means) {
                Ok(Some(connection)) => self.state = State::Connected(Box::new(connection)),
                Ok(None) => {
                    self.give_up_address(now, self.wanted());
                    self.state = State::Pause(now);
                }
                Err(error) => self.fail(now, means, Hindrance::Connect(error.into()), None),
            }
        }
        let State::Connected(mut connection) = core::mem::replace(&mut self.state, State::Idle)
        else {
            return;
        };
        match self.go_on(now, &mut connection, means) {
            Ok(true) => self.state = State::Connected(connection),
            // Nobody has used it for long, or somebody needs another one.
            Ok(false) => {
                connection.link.close(&mut connection.socket);
                self.state = State::Pause(now);
            }
            // The service takes leave, for its limits: it has not gone away.
            Err(Hindrance::Closed) if connection.is_open && connection.asked.is_none() => {
                self.state = State::Pause(now);
            }
            // Nobody may be at fault but the address that it was made from.
            Err(why) if connection.is_bound && !connection.is_connected && !is_refusal(&why) => {
                self.give_up_address(now, connection.wanted);
                self.state = State::Pause(now);
            }
            Err(why) => {
                self.unbound = None;
                self.lost += u64::from(connection.is_open);
                self.fail(now, means, why, connection.asked.take());
            }
        }
    }

    /// The address that the next request asks keys for, if a connection could be made from it.
    fn wanted(&self) -> Option<HostAddr> {
        let service = self.addresses[self.address].ip().into();
        self.waiting.front()?.from.toward(service)
    }

    /// No connection can be made from there.
    fn give_up_address(&mut self, now: Instant, address: Option<HostAddr>) {
        let until = now + UNBOUND_FOR;
        self.unbound = address.map(|address| Unbound { address, until });
    }

    /// Whether a connection should be tried from there.
    fn may_bind(&self, now: Instant, address: HostAddr) -> bool {
        self.unbound.is_none_or(|it| it.address != address || it.until <= now)
    }

    /// Whether the next request may go over a connection, which is for another address, or is not
    /// made from its own though that may be had by now.
    fn is_for_next(&self, now: Instant, connection: &Connection) -> bool {
        let Connection { wanted, is_bound, .. } = *connection;
        self.wanted() == wanted && (is_bound || wanted.is_none_or(|it| !self.may_bind(now, it)))
    }

    /// Ends what has waited for long enough, and forgets what nobody waits for.
    fn give_up(&mut self, now: Instant) {
        self.waiting.retain(|job| job.slot.is_awaited());
        while let Some(at) = self.waiting.iter().position(|job| job.deadline <= now) {
            let job = self.waiting.remove(at).expect("it has been found");
            let error = self.unanswered(self.last.clone());
            job.slot.give(Err(error));
        }
    }

    fn unanswered(&self, why: Hindrance) -> FetchError {
        let (expected, address) = (self.expected.clone(), self.addresses[self.address]);
        FetchError::Unanswered { expected, address, why }
    }

    /// The connection has ended. Another address is tried, after a while.
    fn fail(&mut self, now: Instant, means: &Means<'_>, why: Hindrance, asked: Option<Job>) {
        if let Some(job) = asked {
            self.waiting.push_front(job);
        }
        let address = self.addresses[self.address];
        tracing::debug!(expected = %self.expected, %address, %why, "no connection to a key service");
        (self.last, self.last_at) = (why, Some(address));
        self.give_up(now);
        self.address = (self.address + 1) % self.addresses.len();
        self.state = State::Pause(now + self.backoff.next(means.random));
    }

    /// `None` if there is none from the address that keys are asked for.
    fn connect(&mut self, now: Instant, means: &Means<'_>) -> io::Result<Option<Connection>> {
        let address = self.addresses[self.address];
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        let wanted = self.wanted();
        let is_bound = wanted.filter(|it| self.may_bind(now, *it)).is_some_and(|from| {
            let is_bound = bind(&socket, &SocketAddr::new(from.ip(), 0)).is_ok();
            if !is_bound {
                self.give_up_address(now, wanted);
            }
            is_bound
        });
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(_) if is_bound => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        // Names play no part: it is the identity that is verified.
        let name = ServerName::IpAddress(address.ip().into());
        let tls = ClientConnection::new(Arc::clone(&self.config), name);
        let link = Link::new(tls.map_err(io::Error::other)?);
        let interest = Interest::Write;
        means.poller.add(&socket, self.key, interest)?;
        let (is_connected, is_open, asked, unasked) = (false, false, None, 0);
        let deadline = now + if is_bound { BOUND_TIME } else { CONNECT_TIME };
        Ok(Some(Connection {
            socket,
            link,
            interest,
            wanted,
            is_bound,
            is_connected,
            is_open,
            asked,
            unasked,
            deadline,
        }))
    }

    /// Returns whether the connection is kept.
    fn go_on(
        &mut self,
        now: Instant,
        connection: &mut Connection,
        means: &Means<'_>,
    ) -> Result<bool, Hindrance> {
        let Connection { socket, link, .. } = connection;
        if !connection.is_connected {
            let failed = socket_error(&*socket).unwrap_or_else(Err);
            failed.map_err(|errno| Hindrance::Connect(io::Error::from(errno).into()))?;
            match socket.peer_addr() {
                Ok(_) => {
                    connection.is_connected = true;
                    connection.deadline = now + CONNECT_TIME;
                    let from = socket.local_addr().ok();
                    self.from = from.map(|it| it.ip().to_canonical().into());
                }
                Err(_) if now < connection.deadline => return Ok(true),
                Err(_) => return Err(Hindrance::Time("connecting")),
            }
        }
        if !connection.is_open {
            let shaken = link.shake(now, socket);
            let flushed = link.flush(socket);
            shaken.map_err(Hindrance::from)?;
            flushed.map_err(Hindrance::from)?;
            if link.tls().is_handshaking() {
                if connection.deadline <= now {
                    return Err(Hindrance::Time("the handshake"));
                }
                return wait(self.key, connection, means);
            }
            if link.tls().alpn_protocol() != Some(ALPN) {
                return Err(Hindrance::Protocol);
            }
            connection.is_open = true;
            (self.last, self.last_at) = (Hindrance::Waiting, None);
            connection.deadline = now + IDLE_TIME;
        }
        loop {
            let Connection { socket, link, .. } = connection;
            link.flush(socket).map_err(Hindrance::from)?;
            // Also when nothing is asked: that is how its end shows.
            if let Some(message) = link.receive(now, socket).map_err(Hindrance::from)? {
                // A reply without a number is about the request that its service could not read:
                // the last request.
                let number = message::number(&message);
                let answers = |job: &mut Job| number.is_none_or(|it| it == job.number);
                let Some(job) = connection.asked.take_if(answers) else {
                    self.unasked += 1;
                    connection.unasked += 1;
                    if connection.unasked > UNASKED_MAX {
                        return Err(Hindrance::Unasked);
                    }
                    continue;
                };
                connection.unasked = 0;
                self.backoff.succeeded();
                let (expected, address) = (self.expected.clone(), self.addresses[self.address]);
                job.slot.give(Reply::decode(&message).map_err(|why| FetchError::Malformed {
                    expected,
                    address,
                    why: Box::new(why),
                }));
                connection.deadline = now + IDLE_TIME;
                continue;
            }
            if connection.asked.is_some() {
                break;
            }
            if !self.waiting.is_empty() && !self.is_for_next(now, connection) {
                return Ok(false);
            }
            let Some(job) = self.waiting.pop_front() else { break };
            connection.link.send(&job.message).map_err(Hindrance::from)?;
            connection.asked = Some(job);
            connection.deadline = now + REPLY_TIME;
        }
        if let Some(job) = &connection.asked {
            if connection.deadline <= now {
                return Err(Hindrance::Time("the reply"));
            }
            if job.deadline <= now {
                // The waiter has no more time: perhaps another of its addresses answers sooner.
                return Err(Hindrance::Time("the reply"));
            }
        } else if connection.deadline <= now {
            return Ok(false);
        }
        wait(self.key, connection, means)
    }
}

/// Whether somebody was reached, who has no service there.
fn is_refusal(why: &Hindrance) -> bool {
    matches!(why, Hindrance::Connect(cause) if cause.kind() == io::ErrorKind::ConnectionRefused)
}

/// Waits for what the connection needs.
fn wait(key: u64, connection: &mut Connection, means: &Means<'_>) -> Result<bool, Hindrance> {
    let wants_write = connection.link.tls().wants_write();
    let interest = if wants_write { Interest::Write } else { Interest::Read };
    if interest != connection.interest {
        connection.interest = interest;
        let modified = means.poller.modify(&connection.socket, key, interest);
        modified.map_err(|error| Hindrance::Lost(error.kind()))?;
    }
    Ok(true)
}
