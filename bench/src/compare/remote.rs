//! The kernel's sockets between two machines: the end that a server opens when it is asked to, and
//! the client's.
//!
//! A server opens a port for one client, which has been told a token in the session and says it
//! first: nobody else is answered, and an address that is not the client's is not looked at. The
//! port is closed when it is told so, when the session ends, when nothing comes for a while, and
//! after two minutes. It answers on a thread of its own, which inherits the cores of the one that
//! opened it.

use core::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use rand::Rng as _;
use serde::{Deserialize, Serialize};

#[cfg(not(feature = "quic"))]
use super::fetch::WITHOUT_QUIC;
#[cfg(feature = "quic")]
use super::quic::Quic;
use super::{
    batched::Batched,
    end::{End, Tcp},
    fetch::{self, Fetched, Fetches, Memory, REQUEST, Way},
    link,
    tls::{Identity, Tls},
};
use crate::{error::PairError, floor::clock};

/// The most ports that are open at once.
const MOST: usize = 4;
/// How long one is open at most.
const LASTS: Duration = Duration::from_secs(120);
/// The most bytes that are served.
const MEMORY: u64 = 64 << 20;
/// The most bytes of an answer.
const ANSWER: usize = 4 << 20;
/// How long each end waits for the other of a connection to be ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// The first words of a client.
type Token = [u8; REQUEST];

/// A port that is open for a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// The address, and the port of the way's protocol.
    pub(crate) at: SocketAddr,
    /// The first words to say.
    pub(crate) token: Token,
    /// Bytes of the memory that is served: of the same pattern as the region.
    pub(crate) len: u64,
    /// Of TLS and QUIC: the certificate to trust.
    pub(crate) certificate: Vec<u8>,
}

/// The reason why none is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// So many are open.
    Many(usize),
    /// The system gives none, or this build has none.
    Why(String),
}

/// The ports that a server has opened, by the connection of their clients: one each.
#[derive(Debug)]
pub(crate) struct Ports {
    open: BTreeMap<u64, Arc<AtomicBool>>,
    /// Threads that have not ended yet.
    running: Arc<AtomicUsize>,
    memory: Arc<OnceLock<Memory>>,
    len: u64,
    seed: u64,
    /// How long a client is waited for.
    patience: Duration,
}

impl Ports {
    /// None, of a server with a region of so many bytes and this seed.
    pub(crate) fn new(region_len: u64, seed: u64) -> Self {
        let (open, running, memory) = (BTreeMap::new(), Arc::default(), Arc::default());
        // As much of it as a reader has.
        let (len, patience) = ((region_len / 2).min(MEMORY), PATIENCE);
        Self { open, running, memory, len, seed, patience }
    }

    /// Whether one is open.
    pub(crate) fn any(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// Opens one for `client`, for answers of so many bytes, in place of what it had.
    pub(crate) fn open(
        &mut self,
        connection: u64,
        client: IpAddr,
        (way, size): (Way, u64),
    ) -> Result<Opened, NotOpened> {
        self.close(connection);
        if self.running.load(Relaxed) >= MOST {
            return Err(NotOpened::Many(MOST));
        }
        let size = usize::try_from(size).ok().filter(|it| (1..=ANSWER).contains(it));
        let size = size.filter(|&it| it as u64 <= self.len);
        let size = size.ok_or(NotOpened::Why("answers of that size are not given".to_owned()))?;
        let why = |error: io::Error| NotOpened::Why(error.to_string());
        let socket = Listening::open(way, client).map_err(why)?;
        let at = socket.address().map_err(why)?;
        let identity = matches!(way, Way::Tls | Way::Quic).then(Identity::new).transpose();
        let identity = identity.map_err(|it| NotOpened::Why(it.to_string()))?;
        let certificate = identity.as_ref().map_or(Vec::new(), |it| it.certificate.clone());
        let token: Token = rand::rng().random();
        let stops = Arc::new(AtomicBool::new(false));
        let running = Running::new(&self.running);
        let Self { len, seed, patience, .. } = *self;
        let memory = Arc::clone(&self.memory);
        let until = Arc::clone(&stops);
        let work = move || {
            let _running = running;
            let end = clock() + LASTS;
            let stop = || until.load(Relaxed) || clock() > end;
            let memory = memory.get_or_init(|| Memory::new(len as usize, seed));
            let asked = Asked { way, size, client, token, identity, until: clock() + patience };
            // Whatever becomes of it, its client is the one to tell.
            let _ = socket.serve(asked, memory, &stop);
        };
        thread::Builder::new().name("peer".to_owned()).spawn(work).map_err(why)?;
        self.open.insert(connection, stops);
        Ok(Opened { at, token, len, certificate })
    }

    /// Closes what a connection has.
    pub(crate) fn close(&mut self, connection: u64) {
        if let Some(stops) = self.open.remove(&connection) {
            stops.store(true, Relaxed);
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        self.open.values().for_each(|it| it.store(true, Relaxed));
    }
}

/// Counts a thread.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The purpose of a port.
struct Asked {
    way: Way,
    size: usize,
    client: IpAddr,
    token: Token,
    identity: Option<Identity>,
    /// Until when the client is waited for.
    until: Duration,
}

/// A socket that a client is waited for at.
enum Listening {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

impl Listening {
    /// At the address that leads to `client`, at a port that the kernel chooses.
    fn open(way: Way, client: IpAddr) -> io::Result<Self> {
        #[cfg(not(feature = "quic"))]
        if way == Way::Quic {
            return Err(io::Error::other(WITHOUT_QUIC));
        }
        let here = SocketAddr::new(toward(client)?, 0);
        if matches!(way, Way::Tcp | Way::Tls) {
            let listener = TcpListener::bind(here)?;
            listener.set_nonblocking(true)?;
            return Ok(Self::Tcp(listener));
        }
        Ok(Self::Udp(link::udp(here)?))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Tcp(listener) => listener.local_addr(),
        }
    }

    /// Waits for the client, and answers it.
    fn serve(self, asked: Asked, memory: &Memory, stop: &impl Fn() -> bool) -> io::Result<()> {
        let identity = asked.identity.ok_or(ErrorKind::InvalidInput);
        let (client, token, size) = (asked.client, asked.token, asked.size);
        let late = &|| stop() || clock() > asked.until;
        match (self, asked.way) {
            (Self::Tcp(listener), way) => {
                let stream = accept(&listener, client, token, late)?;
                drop(listener);
                match way {
                    Way::Tls => answer(Tls::server(stream, identity?)?, memory, stop),
                    _ => answer(Tcp::new(stream), memory, stop),
                }
            }
            #[cfg(feature = "quic")]
            (Self::Udp(socket), Way::Quic) => {
                answer(Quic::server(socket, identity?, client, &token, late)?, memory, stop);
            }
            (Self::Udp(socket), way) => {
                let socket = hear(socket, client, token, late)?;
                match way {
                    Way::UdpBatched => answer(Batched::new(socket, size, REQUEST), memory, stop),
                    _ => answer(socket, memory, stop),
                }
            }
        }
        Ok(())
    }
}

/// Answers until it is to stop, nothing comes for a while, or the client has gone.
fn answer(mut end: impl End, memory: &Memory, stop: &impl Fn() -> bool) {
    fetch::serve(&mut end, memory, stop);
}

/// The address of this host that leads to another.
fn toward(other: IpAddr) -> io::Result<IpAddr> {
    let any = match other {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    if matches!(other, IpAddr::V6(it) if it.is_unicast_link_local()) {
        let why = "not over link-local addresses: name the server by another one";
        return Err(io::Error::other(why));
    }
    // Nothing is sent.
    socket.connect((other, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Waits until `look` has found something, or it is to stop.
fn wait<T>(
    stop: &impl Fn() -> bool,
    mut look: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    while !stop() {
        match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::park_timeout(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// Waits for a connection of the client that says the token.
fn accept(
    listener: &TcpListener,
    client: IpAddr,
    token: Token,
    stop: &impl Fn() -> bool,
) -> io::Result<TcpStream> {
    wait(stop, || {
        let (mut stream, from) = listener.accept()?;
        if from.ip() != client {
            return Ok(None);
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut said = Token::default();
        if stream.read_exact(&mut said).is_err() || said != token {
            return Ok(None);
        }
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Some(stream))
    })
}

/// Waits for a datagram of the client with the token, and says that it has come.
fn hear(
    socket: UdpSocket,
    client: IpAddr,
    token: Token,
    stop: &impl Fn() -> bool,
) -> io::Result<UdpSocket> {
    wait(stop, || {
        let mut said = [0; REQUEST + 1];
        let (len, from) = socket.recv_from(&mut said)?;
        if from.ip() != client || said[..len] != token {
            return Ok(None);
        }
        socket.connect(from)?;
        socket.send(&token)?;
        Ok(Some(()))
    })?;
    Ok(socket)
}

/// Makes such fetches from what a server has opened for this way and size.
///
/// # Errors
/// If it cannot be reached; [`PairError::SpoiledRound`] if an answer does not come; if a byte is
/// wrong.
pub(crate) fn fetch_from(
    opened: &Opened,
    way: Way,
    seed: u64,
    fetches: Fetches,
) -> Result<Fetched, PairError> {
    let at = opened.at;
    let span = fetches.span.min(opened.len);
    let fetches = Fetches { span, ..fetches };
    let pattern = rma_lab::Pattern::new(seed);
    let sockets = PairError::Sockets;
    match way {
        Way::Udp => fetch::ask(&mut greet(at, opened.token).map_err(sockets)?, pattern, fetches),
        Way::UdpBatched => {
            let socket = greet(at, opened.token).map_err(sockets)?;
            fetch::ask(&mut Batched::new(socket, REQUEST, fetches.size), pattern, fetches)
        }
        Way::Tcp => {
            let stream = connect(at, opened.token).map_err(sockets)?;
            fetch::ask(&mut Tcp::new(stream), pattern, fetches)
        }
        Way::Tls => {
            let stream = connect(at, opened.token).map_err(sockets)?;
            let mut end = Tls::client(stream, &opened.certificate).map_err(sockets)?;
            fetch::ask(&mut end, pattern, fetches)
        }
        #[cfg(feature = "quic")]
        Way::Quic => {
            let socket = toward(at.ip()).and_then(|here| link::udp((here, 0).into()));
            let Opened { certificate, token, .. } = opened;
            let end = socket.and_then(|it| Quic::client(it, at, certificate, token));
            fetch::ask(&mut end.map_err(sockets)?, pattern, fetches)
        }
        #[cfg(not(feature = "quic"))]
        Way::Quic => Err(fetch::without_quic()),
    }
}

/// Connects, and says the token.
fn connect(at: SocketAddr, token: Token) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.write_all(&token)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Says the token until it is answered.
fn greet(at: SocketAddr, token: Token) -> io::Result<UdpSocket> {
    let socket = link::udp((toward(at.ip())?, 0).into())?;
    socket.connect(at)?;
    let end = clock() + PATIENCE;
    let mut again = clock();
    loop {
        let now = clock();
        if now >= end {
            return Err(ErrorKind::TimedOut.into());
        }
        if now >= again {
            socket.send(&token)?;
            again = now + Duration::from_millis(100);
        }
        let mut said = [0; REQUEST + 1];
        match socket.recv(&mut said) {
            Ok(len) if said[..len] == token => return Ok(socket),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn fetches(size: usize) -> Fetches {
        Fetches { size, depth: 4, span: 1 << 20, warm_up: 5, count: 200 }
    }

    /// Those that this build has.
    fn ways() -> impl Iterator<Item = Way> {
        let all = [Way::Udp, Way::UdpBatched, Way::Tcp, Way::Tls, Way::Quic];
        all.into_iter().filter(|&it| it != Way::Quic || cfg!(feature = "quic"))
    }

    fn closed(ports: &Ports) {
        while ports.any() {
            thread::yield_now();
        }
    }

    #[test]
    fn bytes_are_fetched_from_a_port_that_was_opened_in_each_way() {
        let mut ports = Ports::new(4 << 20, 7);
        for way in ways() {
            let opened = ports.open(1, HERE, (way, 64)).unwrap();
            assert_eq!(opened.len, 2 << 20);
            assert!(ports.any());
            let fetched = fetch_from(&opened, way, 7, fetches(64)).unwrap();
            assert!(fetched.elapsed > Duration::ZERO, "{way:?}");
            ports.close(1);
            closed(&ports);
        }
    }

    #[test]
    fn whoever_does_not_say_the_token_is_not_answered() {
        let mut ports = Ports::new(4 << 20, 7);
        let opened = ports.open(1, HERE, (Way::Tcp, 64)).unwrap();
        let mut stream = connect(opened.at, [0; REQUEST]).unwrap();
        stream.set_nonblocking(false).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it is closed");
        fetch_from(&opened, Way::Tcp, 7, fetches(64)).unwrap();
        let opened = ports.open(1, HERE, (Way::Udp, 64)).unwrap();
        let stranger = UdpSocket::bind((HERE, 0)).unwrap();
        for said in [&[0; REQUEST][..], &[1], &[0; 100]] {
            stranger.send_to(said, opened.at).unwrap();
        }
        fetch_from(&opened, Way::Udp, 7, fetches(64)).unwrap();
        stranger.set_nonblocking(true).unwrap();
        assert_eq!(stranger.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        #[cfg(feature = "quic")]
        {
            let opened = ports.open(1, HERE, (Way::Quic, 64)).unwrap();
            let wrong = Opened { token: [0; REQUEST], ..opened.clone() };
            let fetched = fetch_from(&wrong, Way::Quic, 7, fetches(64));
            assert!(matches!(fetched, Err(PairError::SpoiledRound(_))), "{fetched:?}");
            fetch_from(&opened, Way::Quic, 7, fetches(64)).unwrap();
        }
    }

    #[test]
    fn another_address_than_the_clients_is_not_answered_though_it_says_the_token() {
        let client = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
        let mut ports = Ports::new(4 << 20, 7);
        for way in [Way::Udp, Way::Tcp, Way::Tls] {
            let opened = ports.open(1, client, (way, 64)).unwrap();
            if way == Way::Udp {
                let stranger = UdpSocket::bind((HERE, 0)).unwrap();
                stranger.send_to(&opened.token, opened.at).unwrap();
                // The client's own, which comes after the stranger's.
                let own = UdpSocket::bind((client, 0)).unwrap();
                own.send_to(&opened.token, opened.at).unwrap();
                own.recv(&mut [0; REQUEST]).unwrap();
                stranger.set_nonblocking(true).unwrap();
                assert_eq!(stranger.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
                continue;
            }
            let mut stream = connect(opened.at, opened.token).unwrap();
            stream.set_nonblocking(false).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it is closed");
        }
    }

    #[test]
    fn a_port_that_nobody_comes_to_is_closed() {
        let mut ports = Ports::new(4 << 20, 7);
        ports.patience = Duration::ZERO;
        for way in ways() {
            let opened = ports.open(1, HERE, (way, 64)).unwrap();
            closed(&ports);
            let is_stream = matches!(way, Way::Tcp | Way::Tls);
            assert!(!is_stream || connect(opened.at, opened.token).is_err());
        }
    }

    #[test]
    fn a_port_whose_client_has_gone_is_closed() {
        let mut ports = Ports::new(4 << 20, 7);
        for way in ways() {
            let opened = ports.open(1, HERE, (way, 64)).unwrap();
            fetch_from(&opened, way, 7, fetches(64)).unwrap();
            closed(&ports);
        }
    }

    #[test]
    fn ports_are_few_and_end_with_their_client_and_a_bad_request_ends_none() {
        let mut ports = Ports::new(4 << 20, 7);
        let opened: Vec<Opened> = (0..MOST as u64)
            .map(|connection| {
                let way = if connection == 0 { Way::Udp } else { Way::UdpBatched };
                ports.open(connection, HERE, (way, 64)).unwrap()
            })
            .collect();
        let one_more = ports.open(9, HERE, (Way::Udp, 64));
        assert_eq!(one_more, Err(NotOpened::Many(MOST)));
        let hello = |it: &Opened| greet(it.at, it.token).unwrap();
        let send = |socket: &UdpSocket, [offset, len]: [u64; 2]| {
            let request = [offset.to_le_bytes(), len.to_le_bytes()].concat();
            socket.send(&request).unwrap();
        };
        let mut socket = hello(&opened[0]);
        // Lengths and places that there are not, and the token once more.
        socket.send(&opened[0].token).unwrap();
        for request in [[u64::MAX, 64], [0, u64::MAX], [u64::MAX, u64::MAX], [0, 0]] {
            send(&socket, request);
        }
        fetch::ask(&mut socket, rma_lab::Pattern::new(7), fetches(64)).unwrap();
        // Another length than was said: it is not answered, and not waited for.
        send(&hello(&opened[1]), [0, 65]);
        (0..MOST as u64).for_each(|it| ports.close(it));
        closed(&ports);
        for size in [0, ANSWER as u64 + 1, u64::MAX] {
            let why = ports.open(1, HERE, (Way::Tcp, size)).unwrap_err();
            assert!(matches!(why, NotOpened::Why(_)), "{why:?}");
        }
        let small = Ports::new(0, 7).open(1, HERE, (Way::Tcp, 64));
        assert!(small.is_err(), "there are no bytes to answer with");
    }
}
