//! A service's loop over sockets of loopback, at times that the tests choose.

use core::{net::Ipv4Addr, time::Duration};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    sync::Arc,
};

use rma_core::time::Instant;
use rma_keys::{
    io::server::{EndReason, Limits, ServerLoop},
    peer::Peer,
    secret::Octets,
    time::{Now, WallTime},
};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};

use crate::{
    ca::{CLIENT, Ca, NOON_MS, SERVER, lasting_params, params, wall},
    tls::directory::Scratch,
};

pub(crate) type Handle = Box<dyn FnMut(Now, &Peer, &[u8]) -> Octets>;

/// Echoes what clients send, with their identities.
fn echo(_: Now, peer: &Peer, message: &[u8]) -> Octets {
    Octets::new([peer.identity.as_str().as_bytes(), b" ", message].concat())
}

/// A service and what time it is there.
pub(crate) struct Rig {
    pub(crate) ca: Ca,
    pub(crate) server: ServerLoop<Handle>,
    pub(crate) since: Duration,
    /// By how many milliseconds the wall clock there is wrong.
    pub(crate) wall_step: i64,
}

/// A client whose socket does not block.
pub(crate) struct Client {
    tls: ClientConnection,
    socket: TcpStream,
    pub(crate) is_over: bool,
}

pub(crate) fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// A connection from another address of loopback.
pub(crate) fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
    connect(&socket, &to).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(true).unwrap();
    socket
}

impl Rig {
    pub(crate) fn new(handle: impl FnMut(Now, &Peer, &[u8]) -> Octets + 'static) -> Self {
        let handle: Handle = Box::new(handle);
        let ca = Ca::new("root");
        let credentials = ca.credentials(SERVER);
        let server = ServerLoop::new(listener(), &credentials, handle, Limits::default()).unwrap();
        Self { ca, server, since: Duration::ZERO, wall_step: 0 }
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            boot: Instant::ZERO + self.since,
            wall: WallTime::from_unix_millis(
                NOON_MS + self.since.as_millis() as i64 + self.wall_step,
            ),
        }
    }

    pub(crate) fn turn(&mut self) {
        self.server.wait(self.now().boot);
        self.server.turn(self.now());
    }

    /// Time passes; what comes meanwhile is seen by the next turn.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.since += time;
        self.server.turn(self.now());
    }

    pub(crate) fn ended(&self, reason: EndReason) -> u64 {
        self.server.counters().ended(reason)
    }

    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..1_000 {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        panic!("{what}: {:?}", self.server.counters());
    }

    pub(crate) fn config(&self) -> ClientConfig {
        let credentials = self.ca.credentials(CLIENT);
        ClientConfig::clone(&credentials.client(&wall(self.since), SERVER.parse().unwrap()))
    }

    pub(crate) fn client_with(&self, config: ClientConfig, from: Ipv4Addr) -> Client {
        let socket = connect_from(from, self.server.address());
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        Client { tls, socket, is_over: false }
    }

    /// A client whose handshake has ended.
    pub(crate) fn client(&mut self) -> Client {
        self.client_as(self.config())
    }

    /// The same, of a client of this kind.
    pub(crate) fn client_as(&mut self, config: ClientConfig) -> Client {
        let mut client = self.client_with(config, Ipv4Addr::LOCALHOST);
        let open = self.server.counters().handshakes;
        self.until("a handshake", |rig| {
            client.pump();
            rig.server.counters().handshakes > open
        });
        client
    }

    /// Returns the service's answer.
    pub(crate) fn ask(&mut self, client: &mut Client, message: &[u8]) -> Vec<u8> {
        client.send(message);
        self.reply(client)
    }

    pub(crate) fn reply(&mut self, client: &mut Client) -> Vec<u8> {
        let mut length = [0; 4];
        self.read(client, &mut length);
        let mut reply = vec![0; u32::from_be_bytes(length) as usize];
        self.read(client, &mut reply);
        reply
    }

    fn read(&mut self, client: &mut Client, mut into: &mut [u8]) {
        self.until("a reply", |_| {
            client.pump();
            while !into.is_empty() {
                match client.tls.reader().read(into) {
                    Ok(len) => into = &mut core::mem::take(&mut into)[len..],
                    Err(_) => break,
                }
            }
            into.is_empty()
        });
    }
}

impl Client {
    pub(crate) fn pump(&mut self) {
        while self.tls.wants_write() && !self.is_over {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_over = true,
            }
        }
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => self.is_over = true,
            Ok(_) => self.is_over |= self.tls.process_new_packets().is_err(),
            Err(error) => self.is_over |= error.kind() == ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn write(&mut self, octets: &[u8]) {
        self.tls.writer().write_all(octets).unwrap();
        self.pump();
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        self.write(&[&(message.len() as u32).to_be_bytes(), message].concat());
    }
}

#[test]
fn a_client_that_has_proved_who_it_is_is_answered() {
    let mut rig = Rig::new(echo);
    let mut client = rig.client();
    for message in [&b"one"[..], &[7; 15_000]] {
        let reply = rig.ask(&mut client, message);
        assert_eq!(reply, [CLIENT.as_bytes(), b" ", message].concat());
    }
    for number in 0..20_u8 {
        client.send(&[number]);
    }
    for number in 0..20_u8 {
        assert_eq!(rig.reply(&mut client).last(), Some(&number), "one after the other");
    }
    drop(client);
    rig.until("it is gone", |rig| rig.server.connections() == 0);
    assert_eq!(rig.server.counters().messages, 22);
}

#[test]
fn a_small_turn_serves_one_connection_and_who_always_asks_keeps_no_other_waiting() {
    let mut rig = Rig::new(echo);
    let mut clients = [0; 3].map(|_| rig.client());
    for client in &mut clients {
        // So that nothing is unacknowledged, which would hold back what is sent next.
        rig.ask(client, b"w");
        client.send(b"x");
    }
    let reply = 4 + CLIENT.len() + 2;
    let mut received = [0; 3];
    for _ in 0..1_000 {
        // The octets may take their time on a busy machine: it is found when it is there.
        rig.server.look();
        let before = rig.server.counters().messages;
        rig.server.turn_within(rig.now(), 1);
        let served = rig.server.counters().messages - before;
        // One connection: the first may have asked several times.
        assert!(served <= 4, "{served}");
        clients[0].send(b"y");
        for (client, received) in clients.iter_mut().zip(&mut received) {
            client.pump();
            *received = client.tls.process_new_packets().unwrap().plaintext_bytes_to_read();
        }
        if received[1] == reply && received[2] == reply {
            return;
        }
    }
    panic!("{received:?}");
}

#[test]
fn ten_thousand_that_say_nothing_keep_nobody_out() {
    let mut rig = Rig::new(echo);
    let to = rig.server.address();
    let mut silent = std::collections::VecDeque::new();
    for number in 0..10_000_u16 {
        let [_, last] = number.to_be_bytes();
        silent.push_back(connect_from(Ipv4Addr::new(127, 1, 1, last), to));
        if silent.len() > 2_000 {
            silent.pop_front();
        }
        // At once, so that the system's own queue does not fill up.
        rig.turn();
    }
    rig.until("all have come", |rig| rig.server.counters().accepted == 10_000);
    assert!(rig.server.connections() <= 512, "{}", rig.server.connections());
    assert!(rig.ended(EndReason::HandshakesFull) > 5_000);
    // Nobody else gets in as long as they may still say something.
    let mut early = rig.client_with(rig.config(), Ipv4Addr::LOCALHOST);
    rig.until("it is closed", |_| {
        early.pump();
        early.is_over
    });
    rig.pass(Duration::from_millis(250));
    let mut client = rig.client();
    assert_eq!(rig.ended(EndReason::Silent), 1, "one makes room");
    assert_eq!(rig.ask(&mut client, b"x").last(), Some(&b'x'));
    rig.pass(Duration::from_millis(1750));
    rig.until("the others had two seconds", |rig| rig.server.connections() == 1);
    assert!(rig.ended(EndReason::HandshakeTime) > 400);
}

#[test]
fn one_address_has_its_share_of_handshakes() {
    let mut rig = Rig::new(echo);
    let to = rig.server.address();
    let _silent: Vec<_> = (0..40).map(|_| connect_from(Ipv4Addr::new(127, 1, 1, 1), to)).collect();
    rig.until("all have come", |rig| rig.server.counters().accepted == 40);
    assert_eq!(rig.ended(EndReason::HandshakesOfAddress), 8);
    let mut client = rig.client();
    assert_eq!(rig.ask(&mut client, b"x").last(), Some(&b'x'), "others do not notice");
}

#[test]
fn connections_end_when_their_time_is_over() {
    let mut rig = Rig::new(echo);
    let _idle = rig.client();
    let mut busy = rig.client();
    for minute in 0..59 {
        rig.pass(Duration::from_secs(60));
        rig.ask(&mut busy, b"x");
        assert_eq!(rig.ended(EndReason::Idle), u64::from(minute > 0));
    }
    rig.pass(Duration::from_secs(60));
    assert_eq!((rig.ended(EndReason::Age), rig.server.connections()), (1, 0));
    rig.until("it is told", |_| {
        busy.pump();
        busy.is_over
    });
}

#[test]
fn half_a_message_and_one_of_four_gigabytes_end_a_connection_and_no_other() {
    let mut rig = Rig::new(echo);
    let mut good = rig.client();
    let mut half = rig.client();
    half.write(&[0, 0, 1]);
    rig.turn();
    rig.pass(Duration::from_millis(1999));
    assert_eq!(rig.ask(&mut good, b"x").last(), Some(&b'x'));
    assert_eq!(rig.ended(EndReason::FrameTime), 0);
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.ended(EndReason::FrameTime), 1);
    for length in [[0xff; 4], [0; 4], 16_385_u32.to_be_bytes()] {
        let before = rig.ended(EndReason::FrameLength);
        let mut bad = rig.client();
        bad.write(&length);
        rig.until("it is refused", |rig| rig.ended(EndReason::FrameLength) > before);
        assert_eq!(rig.ask(&mut good, b"x").last(), Some(&b'x'));
    }
}

#[test]
fn one_that_pipelines_without_reading_stops_itself_and_ends() {
    fn long(_: Now, _: &Peer, _: &[u8]) -> Octets {
        Octets::new(vec![1; 16 << 10])
    }
    let mut rig = Rig::new(long);
    let mut greedy = rig.client();
    let mut good = rig.client();
    let mut before = u64::MAX;
    // Until a round of a thousand turns brings no more replies.
    while rig.server.counters().messages != before {
        before = rig.server.counters().messages;
        (0..1_000).for_each(|_| greedy.write_only(b"\0\0\0\x01x"));
        for _ in 0..100 {
            rig.turn_now();
        }
    }
    assert!(before > 10, "{before}");
    assert_eq!(rig.ask(&mut good, b"x").len(), 16 << 10, "others are served on");
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.ended(EndReason::Unread), 1);
    assert_eq!(rig.server.connections(), 1);
}

impl Rig {
    /// A turn that does not wait: a deadline has always just passed.
    fn turn_now(&mut self) {
        let to = self.server.address();
        // The octets make the loop ready.
        drop(connect_from(Ipv4Addr::new(127, 1, 1, 1), to));
        self.turn();
    }
}

impl Client {
    /// Writes as much as the socket takes, and reads nothing.
    fn write_only(&mut self, octets: &[u8]) {
        self.tls.writer().write_all(octets).unwrap();
        while self.tls.wants_write() && self.tls.write_tls(&mut self.socket).is_ok() {}
    }
}

#[test]
fn strangers_are_refused_each_under_its_reason() {
    let mut rig = Rig::new(echo);
    let mut good = rig.client();
    let (other, root) = (Ca::new("other"), &rig.ca);
    let config = |credentials: &rma_keys::tls::credentials::Credentials| {
        ClientConfig::clone(&credentials.client(&wall(Duration::ZERO), SERVER.parse().unwrap()))
    };
    let ours = |uri: &str| {
        let issued = root.issue(&params(&[uri]));
        config(&issued.credentials(root.trust()).unwrap())
    };
    let foreign = other.issue(&params(&[CLIENT])).credentials(root.trust()).unwrap();
    let mut no_alpn = ours(CLIENT);
    no_alpn.alpn_protocols.clear();
    let mut other_alpn = ours(CLIENT);
    other_alpn.alpn_protocols = vec![b"h2".to_vec()];
    let b_org = ours("spiffe://b.org/a");
    for (config, reason) in [
        (config(&foreign), EndReason::CertificateIssuer),
        (b_org, EndReason::CertificateDomain),
        (no_alpn, EndReason::Protocol),
        (other_alpn, EndReason::Protocol),
    ] {
        let before = rig.ended(reason);
        let mut client = rig.client_with(config, Ipv4Addr::LOCALHOST);
        rig.until(reason.name(), |rig| {
            client.pump();
            rig.ended(reason) > before
        });
    }
    let mut plain = connect_from(Ipv4Addr::LOCALHOST, rig.server.address());
    plain.write_all(b"GET / HTTP/1.1\r\nHost: kv.example.org\r\n\r\n").unwrap();
    rig.until("it is no TLS", |rig| rig.ended(EndReason::Handshake) == 1);
    // A day later a certificate has ended: no new connection, and the service is told at each
    // request of the old one.
    rig.since = Duration::from_secs(13 * 3600);
    assert_eq!(rig.server.connections(), 1);
    assert_eq!(rig.ended(EndReason::Closed) + rig.ended(EndReason::Lost), 0);
    good.pump();
    assert!(!good.is_over);
}

#[test]
fn new_credentials_hold_for_new_connections() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    // This machine's clock judges certificates that are read at the start.
    ca.write_issued(scratch.path(), &ca.issue(&lasting_params(SERVER)));
    let limits = Limits::default();
    let handle: Handle = Box::new(echo);
    let server = ServerLoop::from_directory(listener(), scratch.path(), handle, limits).unwrap();
    let mut rig = Rig { ca, server, since: Duration::ZERO, wall_step: 0 };
    let mut old = rig.client();
    std::fs::write(scratch.path().join("cert.pem"), "half").unwrap();
    rig.pass(Duration::from_secs(10));
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.server.counters().not_reloaded, 1);
    let _still = rig.client();
    // Another root: who has the old one's certificate stays, and is not let in again.
    let (before, after) = (rig.config(), Ca::new("new root"));
    after.write(scratch.path(), SERVER);
    rig.pass(Duration::from_secs(10));
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.server.counters().reloaded, 1);
    assert_eq!(rig.ask(&mut old, b"x").last(), Some(&b'x'));
    rig.ca = after;
    let mut new = rig.client();
    assert_eq!(rig.ask(&mut new, b"x").last(), Some(&b'x'));
    let mut late = rig.client_with(before, Ipv4Addr::LOCALHOST);
    rig.until("it is refused", |_| {
        late.pump();
        late.is_over
    });
}
