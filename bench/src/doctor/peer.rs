//! `doctor --peer`: the path to another host, step by step, and what that host finds wrong with
//! itself.
//!
//! All of it is done by a thread, and told as it is found: a step that takes too long takes nothing
//! away from those before it.

use core::{net::SocketAddr, time::Duration};
use std::{
    io::ErrorKind,
    net::TcpStream,
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
};

use clap::Args;
use rma_core::wire::read::RESPONSE_OVERHEAD;
use rma_doctor::{
    Finding, State,
    path::{Largest, Step, largest},
};
use rma_keys::io::addresses::Addresses;
use rma_xdp::{
    Completion, HostAddr, HostError, OpStatus, OpType,
    device::net::PathError,
    keys::SpiffeId,
    ops::OP_SIZE_MAX,
    time::{Clock, TscClock},
};
use serde::Serialize;

use super::identity;
use crate::{
    backend::DeviceArgs,
    client::Client,
    error::{NOTHING_COMES_BACK, PairError},
    interrupt::Interrupt,
    invite::Typed,
    keys::{ClientKeyArgs, KeysError, Service, service_address},
    line,
    machine::mode_and_mtu,
    remote::{Wanted, open_named},
    route::interface_toward,
    serve::{HostArgs, ServeError, Tuning},
    session::{Session, SessionError},
};

/// How long all of it may take: what is left of six seconds beside this host's own findings.
const ALL: Duration = Duration::from_millis(4500);

/// How long a connection, the key service and the first answer may take.
const PATIENCE: Duration = Duration::from_millis(1200);

/// How long the answer to a probe may take beyond four times what connecting took. Longer: fewer
/// probes. Shorter: a busy core is taken for a narrow path.
const PROBE: Duration = Duration::from_millis(50);

/// How often it is asked whether the other host is done.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The length of packet, in bytes, from which on one that arrives is looked for.
const LEAST: u32 = 576;

/// The octets of IP and UDP headers.
const HEADERS_V4: u32 = 28;
const HEADERS_V6: u32 = 48;

/// The options about another host.
#[derive(Args, Clone, Debug)]
pub struct PeerArgs {
    /// Ask this host, which runs `rma-bench serve`, what it finds, and look at the path to it. Keys
    /// are served at TCP port 7471, unless it is given as HOST:PORT.
    #[arg(long, value_name = "HOST", value_parser = service_address, conflicts_with = "from")]
    peer: Option<Addresses>,
    /// Code that `serve` has printed there, or - to read it from standard input. It may also be in
    /// the variable RMA_BENCH_INVITE.
    #[arg(long, value_name = "CODE", requires = "peer", conflicts_with_all = ["expect", "id"])]
    invite: Option<Typed>,
    /// SPIFFE ID that the service must have.
    #[arg(long, value_name = "IDENTITY", requires_all = ["peer", "id"])]
    expect: Option<SpiffeId>,
    /// Directory with this side's certificate and key, which is looked at as well.
    #[arg(long, value_name = "DIR")]
    id: Option<PathBuf>,
    /// Probe the path with kernel UDP sockets, bound to this address of this host.
    #[arg(long, value_name = "ADDRESS", requires = "peer")]
    udp: Option<HostAddr>,
}

/// The other host, and the path to it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Page {
    /// The address of the other host.
    pub(crate) peer: SocketAddr,
    /// The steps of the path, as far as it was gone.
    pub(crate) path: Vec<Finding>,
    /// The findings of the other host about itself; none if it did not tell.
    pub(crate) there: Option<Vec<Finding>>,
}

/// A part of a page.
enum Part {
    Path(Finding),
    There(Vec<Finding>),
}

impl PeerArgs {
    /// The finding about the certificate of `--id`, if one is given.
    pub(crate) fn identity(&self) -> Option<Finding> {
        self.id.as_deref().map(identity::examine)
    }

    /// Looks at the path and asks the other host, if one is given, for as long as 4.5 s.
    pub(crate) fn examine(&self, interface: Option<&str>, interrupt: &Interrupt) -> Option<Page> {
        let peer = self.peer.as_ref()?.first();
        let (tell, told) = mpsc::channel();
        let mut path = Path { args: self.clone(), asked: interface.map(str::to_owned), peer, tell };
        let clock = TscClock::new();
        // It ends by itself, or with the program.
        thread::spawn(move || path.go());
        let mut page = Page { peer, path: Vec::new(), there: None };
        loop {
            let left = ALL.saturating_sub(Duration::from_nanos(clock.now().as_nanos()));
            match told.recv_timeout(left.min(ASK_EVERY)) {
                Ok(Part::Path(finding)) => page.path.push(finding),
                Ok(Part::There(findings)) => page.there = Some(findings),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if left.is_zero() || interrupt.is_set() => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Some(page)
    }
}

impl Page {
    /// How many are to be mended, on the path and there.
    pub(crate) fn to_mend(&self) -> usize {
        let all = self.path.iter().chain(self.there.iter().flatten());
        all.filter(|it| it.state == State::Mend).count()
    }

    /// Writes it for people.
    pub(crate) fn say(&self) {
        // Somebody else's words: none of them moves a cursor.
        let plain = |text: &str| text.replace(|it: char| !(' '..='~').contains(&it), "?");
        let say = |head: &str, it: &Finding| {
            let state = match it.state {
                State::Ok => "ok",
                State::Note => "note",
                State::Mend => "mend",
                State::Unknown => "unknown",
                _ => return,
            };
            let (id, found, why) = (plain(&it.id), plain(&it.found), plain(&it.why));
            let wanted = it.wanted.as_deref().filter(|_| it.state != State::Ok);
            let wanted = wanted.map_or_else(String::new, |it| format!(" (wanted: {})", plain(it)));
            line!("  {head:<6}{state:<8}{id:<16}{found}{wanted}: {why}");
            if let Some(command) = it.command.as_deref().filter(|_| it.state != State::Ok) {
                line!("  {:<30}{}", "", plain(command));
            }
        };
        self.path.iter().for_each(|it| say("path", it));
        let peer = self.peer.ip();
        let Some(there) = &self.there else {
            line!("  there   {peer} has not told what it finds");
            return;
        };
        let count = |state| there.iter().filter(|it| it.state == state).count();
        let (ok, mend) = (count(State::Ok), count(State::Mend));
        let (note, unknown) = (count(State::Note), count(State::Unknown));
        line!("  there   {peer}: {ok} ok, {note} notes, {mend} to mend, {unknown} unknown");
        there
            .iter()
            .filter(|it| matches!(it.state, State::Note | State::Mend))
            .for_each(|it| say("there", it));
    }
}

/// The path, while it is gone.
struct Path {
    args: PeerArgs,
    /// The interface that was asked for.
    asked: Option<String>,
    peer: SocketAddr,
    tell: Sender<Part>,
}

impl Path {
    fn go(&mut self) {
        let Some(interface) = self.route() else { return };
        let clock = TscClock::new();
        let Some(round_trip) = self.tcp(&clock, &interface) else { return };
        let Some((service, keys)) = self.service() else { return };
        let Some(mut session) = self.session(&service) else { return };
        // It looks at itself meanwhile.
        let asked = session.findings();
        let timeout = PROBE.saturating_add(round_trip.saturating_mul(4));
        let probing = Probing { path: self, service, keys, interface, timeout, clock: &clock };
        let there = session.hello().conditions.mtu;
        probing.go(there);
        let mut found = asked;
        while matches!(found, Ok(None)) {
            thread::park_timeout(ASK_EVERY);
            found = session.findings();
        }
        match found {
            Ok(Some(findings)) => self.part(Part::There(findings)),
            Ok(None) => {}
            Err(why) => {
                let why = format!("it does not tell its findings: {why}");
                self.say(Step { id: "peer_findings", interface: None }.unknown(why));
            }
        }
    }

    fn part(&self, part: Part) {
        // Nobody listens any more once the time is over.
        _ = self.tell.send(part);
    }

    fn say(&self, finding: Finding) {
        self.part(Part::Path(finding));
    }

    /// The interface that the kernel reaches it by.
    fn route(&self) -> Option<String> {
        let peer = self.peer.ip();
        let step = Step { id: "peer_route", interface: self.asked.as_deref() };
        match interface_toward(self.peer) {
            Ok((interface, own)) => {
                let found = format!("{own} by {interface}");
                let is_other = self.asked.as_ref().is_some_and(|it| *it != interface);
                let is_own = self.args.udp.is_some();
                self.say(if is_other && !is_own {
                    let why =
                        "1RMA reaches it by the interface of the route alone: look at that one";
                    step.mend(found, why, &format!("rma-bench doctor {interface} --peer {peer}"))
                } else {
                    step.ok(found, "the kernel has a way there")
                });
                Some(interface)
            }
            Err(why) => {
                let command = format!("ip route get {peer}");
                self.say(step.mend("no way there", why.to_string(), &command));
                None
            }
        }
    }

    /// Connects, and tells how long that took.
    fn tcp(&self, clock: &TscClock, interface: &str) -> Option<Duration> {
        let peer = self.peer;
        let interface = Some(interface);
        let [neighbour, tcp] = ["peer_neighbour", "peer_tcp"].map(|id| Step { id, interface });
        let began = clock.now();
        let connected = TcpStream::connect_timeout(&peer, PATIENCE);
        let took = clock.now().since(began);
        let answers = "it, or the gateway to it, tells its hardware address";
        match connected {
            Ok(_) => {
                self.say(neighbour.ok("it answers", answers));
                self.say(tcp.ok(format!("{peer} listens"), "keys and the session go over it"));
                return Some(took);
            }
            Err(why) if why.kind() == ErrorKind::ConnectionRefused => {
                self.say(neighbour.ok("it answers", answers));
                let why = "keys are fetched there: start it, or give the port as HOST:PORT";
                let command = "rma-bench serve --interface INTERFACE";
                self.say(tcp.mend(format!("nothing listens at {peer}"), why, command));
            }
            Err(why) if why.kind() == ErrorKind::HostUnreachable || is_silent(peer) => {
                let ip = peer.ip();
                let why =
                    "nobody on the link answers for its address: is it up, and on this network?";
                self.say(neighbour.mend(
                    format!("{ip} is silent"),
                    why,
                    &format!("ip neigh show {ip}"),
                ));
            }
            Err(why) if why.kind() == ErrorKind::TimedOut => {
                let why = "a firewall drops it, here, there or between, or the host is down";
                let command = format!("nft list ruleset | grep {}", peer.port());
                self.say(tcp.mend(format!("no answer from {peer}"), why, &command));
            }
            Err(why) => self.say(tcp.mend(
                why.to_string(),
                "keys are fetched there",
                &format!("ip route get {}", peer.ip()),
            )),
        }
        None
    }

    fn service(&self) -> Option<(Service, ClientKeyArgs)> {
        let PeerArgs { peer, invite, expect, id, .. } = self.args.clone();
        let (keys, region, seed, port) = (None, None, None, None);
        let keys = ClientKeyArgs { server: peer, keys, invite, expect, id, region, seed, port };
        match keys.service() {
            Ok(service) => Some((service?.with_patience(PATIENCE), keys)),
            Err(why) => {
                self.say(Step { id: "peer_tls", interface: None }.unknown(why.to_string()));
                None
            }
        }
    }

    /// The session: that says who it is, and which version it has.
    fn session(&self, service: &Service) -> Option<Session> {
        let [tls, version] = ["peer_tls", "peer_version"].map(|id| Step { id, interface: None });
        let proved =
            || tls.ok("it is who it should be", "its certificate is of the code, or of --expect");
        match service.session() {
            Ok(Some(session)) => {
                self.say(proved());
                let found = session
                    .hello()
                    .versions
                    .to_string()
                    .replace(|it: char| !(' '..='~').contains(&it), "?");
                self.say(version.ok(found, "both sides understand each other"));
                return Some(session);
            }
            Ok(None) => {
                self.say(proved());
                let why = "keys are served there, but not by it: it tells nothing of itself";
                let command = "rma-bench serve --interface INTERFACE";
                self.say(version.mend("no rma-bench serve", why, command));
            }
            Err(KeysError::Session(why @ SessionError::Version { .. })) => {
                self.say(proved());
                self.say(version.mend("another version", why.to_string(), "rma-bench --version"));
            }
            Err(why) => {
                let command = "rma-bench serve --interface INTERFACE";
                self.say(tls.mend("not the one that it should be", why.to_string(), command));
            }
        }
        None
    }
}

/// Whether the kernel has asked for a neighbour of this address, and nobody has told.
fn is_silent(peer: SocketAddr) -> bool {
    let known = std::fs::read_to_string("/proc/thread-self/net/arp").unwrap_or_default();
    known.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(&*peer.ip().to_string()) && words.nth(1) == Some("0x0")
    })
}

/// The frames, while they are looked at.
struct Probing<'a> {
    path: &'a Path,
    service: Service,
    keys: ClientKeyArgs,
    interface: String,
    /// How long the answer to a probe may take.
    timeout: Duration,
    clock: &'a TscClock,
}

impl Probing<'_> {
    fn step<'s>(&'s self, id: &'s str) -> Step<'s> {
        Step { id, interface: Some(&self.interface) }
    }

    /// Looks whether frames arrive, and how long ones. The device there takes packets of
    /// `mtu_there` bytes.
    fn go(&self, mtu_there: u32) {
        let began = self.clock.now();
        let mut client = match self.open() {
            Ok(client) => client,
            Err(why) => return self.path.say(self.why_not(why)),
        };
        client.failures.set_patience(PATIENCE);
        if let Err(why) = client.reach(&Interrupt::default()) {
            return self.path.say(self.why_not(why.into()));
        }
        let (_, mtu) = mode_and_mtu(client.host.info());
        let udp = self.step("peer_udp");
        self.path.say(udp.ok("READs are answered", "frames come and go, in both directions"));
        let device_mtu = if mtu_there > 0 { mtu.min(mtu_there) } else { mtu };
        let headers = if self.path.peer.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
        let overhead = headers + RESPONSE_OVERHEAD as u32;
        let region = u32::try_from(client.grants.any().region_len).unwrap_or(OP_SIZE_MAX);
        let most = device_mtu.min(overhead + region.min(OP_SIZE_MAX));
        let frame = self.step("peer_frame");
        let peer = self.path.peer.ip().to_string();
        // The kernel was told, by a router or a route: longer ones would be cut.
        if let Some(narrow) = client.host.narrow_paths().first() {
            let (arrives, vanishes) = (Some(narrow.mtu), Some(narrow.mtu + 1));
            let found = Largest { arrives, vanishes };
            return self.path.say(frame.of_largest(&peer, device_mtu, found));
        }
        // A probe that is lost takes another host and two timeouts. Who began one too many would
        // tell nothing of those before it.
        let mut longest = self.clock.now().since(began).saturating_add(self.timeout * 2);
        let mut client = Some(client);
        let found = largest(LEAST.min(most), most, |len| {
            let began = self.clock.now();
            if Duration::from_nanos(began.as_nanos()).saturating_add(longest) > ALL - 2 * PROBE {
                return None;
            }
            // Who has lost some sends shorter ones: each that was lost needs another host.
            let mut probe = client.take().map_or_else(|| self.open(), Ok).ok()?;
            let arrives = (0..2).any(|_| read(&mut probe, len.saturating_sub(overhead)));
            client = Some(probe).filter(|_| arrives);
            longest = longest.max(self.clock.now().since(began));
            Some(arrives)
        });
        self.path.say(frame.of_largest(&peer, device_mtu, found));
    }

    fn open(&self) -> Result<Client, ServeError> {
        let udp = self.path.args.udp;
        let interface = udp.is_none().then(|| self.interface.clone());
        let host = HostArgs::of_device(DeviceArgs { interface, udp, ..DeviceArgs::default() });
        let tuning = Tuning { timeout: Some(self.timeout), ..Tuning::default() };
        let (size, op_types, patience, quiet) = (1, &[OpType::Read][..], PATIENCE, true);
        let wanted = Wanted { size, op_types, patience, tuning, quiet };
        let (client, ..) = open_named(&host, (&self.keys, &self.service), wanted)?;
        Ok(client)
    }

    /// The step that failed.
    fn why_not(&self, why: ServeError) -> Finding {
        let peer = self.path.peer.ip();
        match why {
            ServeError::Host(HostError::Path(why)) => {
                let (id, command) = match &why {
                    PathError::NeighbourUnresolved { next_hop, .. } => {
                        ("peer_neighbour", format!("ip neigh show {next_hop}"))
                    }
                    _ => ("peer_route", format!("ip route get {peer}")),
                };
                self.step(id).mend("no way there", why.to_string(), &command)
            }
            ServeError::Pair(PairError::Failing { .. }) => {
                let why =
                    format!("its keys come, and frames do not: there is {NOTHING_COMES_BACK}");
                let command = format!("rma-bench verify {peer}");
                self.step("peer_udp").mend("nothing comes back", why, &command)
            }
            why => self.step("peer_udp").unknown(format!("a host cannot be opened here: {why}")),
        }
    }
}

/// Whether a READ of so many bytes is answered in time.
fn read(client: &mut Client, size: u32) -> bool {
    let grant = client.grants.get(OpType::Read);
    let Client { host, portal, local, .. } = client;
    let Ok(grant) = grant else { return false };
    let issued = portal.read(&grant, 0, local, 0, size);
    let ended = issued.ok().and_then(|_| host.wait(portal).ok());
    ended.is_some_and(|Completion { status, .. }| status == OpStatus::Ok)
}
