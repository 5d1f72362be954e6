//! The paths to wanted destinations, and when to ask the kernel again.
//!
//! A state machine over [`Kernel`]: it reads no clock and waits for nothing, so its tests need no
//! network. The thread around it is in `monitor`.
//!
//! Invariant: after each call, the table holds a path for exactly those wanted destinations that
//! have a route over our interface and a usable neighbour entry, while the link runs.
//!
//! # How neighbours are kept
//!
//! The kernel does not see our frames, so for it our peers are idle: entries go stale, and a peer
//! that came back with another hardware address would not be noticed. Every [`REFRESH`], and while
//! a destination waits for its first answer, we tell the kernel that we are using the neighbour
//! (`NTF_USE`): an unknown one is then resolved and a stale one probed, at the kernel's own pace.
//! Preferred to sending a datagram through a kernel socket, since the peer sees nothing but ARP or
//! neighbour discovery; and to the `managed` flag, since that would outlive us after a kill.
//!
//! An unannounced change of a peer's hardware address is so noticed within the kernel's reachable
//! time (15 to 45 s), its delay (5 s) and three probes (3 s); an announced one at once.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::{Arc, mpsc::SyncSender},
    time::Duration,
};

use netlink_packet_route::neighbour::NeighbourState;
use rma_core::{
    addr::{HostAddr, LocalAddresses},
    nic::{Shares, TenantIndex},
    time::Instant,
};

use super::{
    error::PathError,
    netlink::{Flow, Link, Neighbour, News, Questions, Route, RouteKind},
};
use crate::device::{
    address,
    paths::{DESTINATIONS_MAX, LinkState, Loss, Path, PathWriter, REQUESTS_AT_ONCE, packet_len},
    search::{Finding, Lost, Search},
    ways::{NarrowPath, Ways},
};

/// How often a destination's route and neighbour are asked for again. Longer delays the notice of a
/// silent change (path MTU, hardware address); shorter costs questions, three for each destination.
pub(super) const REFRESH: Duration = Duration::from_secs(5);

/// How often the same unresolved destination may cause questions by being requested.
const NUDGE: Duration = Duration::from_millis(100);

/// How long a destination without a usable route stays refused before it is asked for again.
pub(super) const FAILED_HOLD: Duration = Duration::from_secs(1);

/// How long a resolved destination stays that no frame goes to. Shorter would make a host that
/// sends rarely wait for a new answer more often; longer keeps its place in the table.
pub(super) const IDLE: Duration = Duration::from_secs(300);

/// How long a destination stays that does not answer and that nobody asks for any longer.
const UNRESOLVED_IDLE: Duration = Duration::from_secs(10);

/// Pause between two times that all routes and addresses are asked for again, so that a flapping
/// route elsewhere does not keep this thread busy.
const REROUTE_PAUSE: Duration = Duration::from_millis(20);

/// Destinations up to which others are looked for that nobody sends to yet. Half: hosts that may
/// never come must not keep out those that are there.
pub(super) const PREPARED_UP_TO: usize = DESTINATIONS_MAX / 2;

/// Destinations refreshed in one turn, so that requests are not kept waiting.
const BATCH: usize = 32;

/// The questions to the kernel.
pub(super) trait Kernel {
    fn link(&mut self, index: u32) -> io::Result<Link>;
    fn link_by_name(&mut self, name: &str) -> io::Result<Link>;
    fn route(&mut self, flow: Flow) -> io::Result<Route>;
    /// Length of the prefix of the route that the flow follows; an error if there is none.
    fn route_prefix(&mut self, flow: Flow) -> io::Result<u8>;
    /// Whether an address is this host's, and usable; `interface` is ours.
    fn has_address(&mut self, address: HostAddr, interface: u32) -> io::Result<bool>;
    fn neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<Option<Neighbour>>;
    fn use_neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<()>;
}

impl Kernel for Questions {
    fn link(&mut self, index: u32) -> io::Result<Link> {
        self.link_by_index(index)
    }

    fn link_by_name(&mut self, name: &str) -> io::Result<Link> {
        self.link_by_name(name)
    }

    fn route(&mut self, flow: Flow) -> io::Result<Route> {
        self.route(flow)
    }

    fn route_prefix(&mut self, flow: Flow) -> io::Result<u8> {
        self.route_prefix(flow)
    }

    fn has_address(&mut self, address: HostAddr, interface: u32) -> io::Result<bool> {
        address::is_usable(address, Some(interface))
    }

    fn neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<Option<Neighbour>> {
        self.neighbour(interface, address)
    }

    fn use_neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        self.use_neighbour(interface, address)
    }
}

/// The reason why a destination has no route for us. `Copy`, so that each waiter gets its own
/// error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    NoRoute,
    NotUnicast,
    WrongInterface { index: u32 },
    ThisHost,
    SourceGone { source: HostAddr },
    LinkDown,
    InterfaceGone,
    Kernel { doing: &'static str, errno: i32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Routed { next_hop: IpAddr, mtu: Option<u32> },
    Failed(Failure),
}

#[derive(Debug)]
struct Destination {
    state: State,
    /// The path that was told last.
    told: Option<Path>,
    /// When somebody last asked for it or sent to it, as far as we know.
    wanted_at: Duration,
    /// When the kernel was last asked.
    asked_at: Duration,
    refresh_at: Duration,
    /// The tenant whose place it has: the one that asked for it first.
    tenant: TenantIndex,
}

/// The way back to a caller of `resolve`.
pub(super) type Reply<T> = SyncSender<Result<T, PathError>>;

#[derive(Debug)]
struct Waiter {
    destination: HostAddr,
    deadline: Duration,
    reply: Reply<Path>,
}

/// The wanted destinations with what is known of each, those who wait for a path, and the writer of
/// the table that engines read.
#[derive(Debug)]
pub(super) struct Resolver<K> {
    kernel: K,
    /// The name that it was opened by, one of those that it had then.
    name: Box<str>,
    /// As it is, or was last.
    link: Link,
    /// It is not there, nor is another that has its last name or the one that it was opened by.
    gone: bool,
    writer: PathWriter,
    /// The ways that others are told of.
    ways: Arc<Ways>,
    /// The addresses that frames are sent from.
    sources: LocalAddresses,
    search: Search,
    /// When it was last looked what was heard.
    looked_at: Duration,
    destinations: BTreeMap<HostAddr, Destination>,
    /// The shares that the host's tenants have of them.
    shares: Shares,
    /// The kernel's entries of all next hops in use.
    neighbours: BTreeMap<IpAddr, Neighbour>,
    waiters: Vec<Waiter>,
    reroute_wanted: bool,
    reroute_not_before: Duration,
}

impl<K: Kernel> Resolver<K> {
    /// `name`: what the interface was opened by.
    pub(super) fn new(
        kernel: K,
        name: &str,
        link: Link,
        mut writer: PathWriter,
        ways: Arc<Ways>,
    ) -> Self {
        writer.set_interface_index(link.index);
        writer.set_interface_mtu(link.mtu);
        writer.set_link(if link.running { LinkState::Up } else { LinkState::Down });
        writer.set_interface_mac(link.mac);
        Self {
            kernel,
            name: name.into(),
            link,
            gone: false,
            writer,
            ways,
            sources: LocalAddresses::default(),
            search: Search::default(),
            looked_at: Duration::ZERO,
            destinations: BTreeMap::new(),
            shares: Shares::new(DESTINATIONS_MAX as u32, FAILED_HOLD.as_nanos() as u64),
            neighbours: BTreeMap::new(),
            waiters: Vec::new(),
            reroute_wanted: false,
            reroute_not_before: Duration::ZERO,
        }
    }

    /// Takes what the engines requested.
    pub(super) fn handle_requests(&mut self, now: Duration) {
        // Not more than can wait: engines could ask for ever.
        for _ in 0..REQUESTS_AT_ONCE {
            let Some((tenant, destination)) = self.writer.poll_request() else { return };
            self.want(tenant, destination, now);
        }
    }

    /// Takes what the engines tell of ops that were lost.
    pub(super) fn handle_losses(&mut self, now: Duration) {
        while let Some(Loss { peer, len }) = self.writer.poll_loss() {
            let Some(State::Routed { mtu, .. }) = self.destinations.get(&peer).map(|it| it.state)
            else {
                continue;
            };
            let full = mtu.map_or(self.link.mtu, |mtu| mtu.min(self.link.mtu));
            let len = packet_len(peer, len);
            let heard = packet_len(peer, self.writer.take_heard(peer));
            let finding = self.search.lost(peer, Lost { len, heard, full }, now);
            self.found(peer, finding);
        }
    }

    /// Looks what was heard of hosts that are searched.
    fn look(&mut self, now: Duration) {
        self.looked_at = now;
        for peer in self.search.watched() {
            let heard = packet_len(peer, self.writer.take_heard(peer));
            let finding = self.search.heard(peer, heard, now);
            self.found(peer, finding);
        }
        for peer in self.search.handle_timeout(now) {
            self.publish(peer);
        }
    }

    fn found(&mut self, peer: HostAddr, finding: Option<Finding>) {
        if let Some(finding) = finding {
            self.ways.found(peer, finding, self.link.mtu);
        }
        self.publish(peer);
    }

    /// Sets the addresses that frames are sent from.
    pub(super) fn set_sources(&mut self, sources: LocalAddresses) {
        self.sources = sources;
        self.check_sources();
        self.reroute_wanted = true;
    }

    /// Looks whether they are there, and tells.
    fn check_sources(&mut self) {
        for address in self.sources.iter() {
            // An address that cannot be asked about stays as it was; the next news ask again.
            if let Ok(is_there) = self.kernel.has_address(address, self.link.index) {
                self.ways.tell_address(address, is_there, Some(&*self.link.name));
            }
        }
    }

    fn want(&mut self, tenant: TenantIndex, destination: HostAddr, now: Duration) {
        if let Some(entry) = self.destinations.get_mut(&destination) {
            entry.wanted_at = now;
            let unresolved = match entry.state {
                State::Routed { next_hop, .. } => !is_usable(&self.neighbours, next_hop),
                State::Failed(_) => false,
            };
            if unresolved && now >= entry.asked_at + NUDGE {
                self.refresh(destination, now);
            }
        } else if self.has_place(tenant, now) {
            self.refresh_for(tenant, destination, now);
        }
    }

    /// Whether a tenant may have one more destination. Where the tenants of a host have all places,
    /// one that has more than its floor makes room: first by a destination that nothing was found
    /// for, and else by the one that it has not gone to for longest.
    fn has_place(&mut self, tenant: TenantIndex, now: Duration) -> bool {
        let Self { shares, destinations, .. } = self;
        shares.note_time(Instant::from_nanos(now.as_nanos() as u64));
        let may_have_more = shares.is_alone(tenant) || shares.admits(tenant, 1);
        if destinations.len() < DESTINATIONS_MAX {
            return may_have_more;
        }
        if shares.is_beyond_floor(tenant, tenant) {
            return false;
        }
        let found = |entry: &Destination| entry.told.is_some();
        let is_waited_for = |it: &HostAddr| self.waiters.iter().any(|w| w.destination == *it);
        let given = destinations
            .iter()
            .filter(|(_, it)| it.tenant != tenant && shares.is_beyond_floor(it.tenant, tenant))
            .filter(|(destination, _)| !is_waited_for(destination))
            .min_by_key(|(_, it)| (found(it), it.wanted_at))
            .map(|(destination, _)| *destination);
        given.inspect(|&destination| self.forget(destination)).is_some()
    }

    /// Finds a path that may be needed, if there is ample room.
    pub(super) fn prepare(&mut self, destination: HostAddr, now: Duration) {
        let known = self.destinations.contains_key(&destination);
        if known || self.destinations.len() < PREPARED_UP_TO {
            self.want(TenantIndex::HOST, destination, now);
        }
    }

    /// Finds a path for somebody who waits for it until `deadline`.
    pub(super) fn resolve(
        &mut self,
        destination: HostAddr,
        now: Duration,
        deadline: Duration,
        reply: Reply<Path>,
    ) {
        let known = self.destinations.contains_key(&destination);
        if !known && !self.has_place(TenantIndex::HOST, now) {
            let capacity = DESTINATIONS_MAX;
            // The caller may have gone away; then nobody needs to know.
            let _ = reply.send(Err(PathError::TableFull { destination, capacity }));
            return;
        }
        self.waiters.push(Waiter { destination, deadline, reply });
        self.refresh(destination, now);
    }

    /// Whether `source_address` is an address of this host, on whichever interface.
    pub(super) fn check_source(&mut self, source_address: HostAddr) -> Result<(), PathError> {
        let flow = Flow { source: None, destination: source_address, ..self.flow(source_address) };
        match self.kernel.route(flow) {
            Ok(Route { kind: RouteKind::Local, .. }) => Ok(()),
            Err(source) if !is_no_route(&source) => {
                let doing = "asking whether it is an address of this host";
                Err(PathError::Kernel { doing, destination: source_address, source })
            }
            _ => Err(PathError::SourceNotLocal { source_address }),
        }
    }

    /// Takes news from the kernel. Only says *that* something changed: what it is now is asked for,
    /// so that news that were overtaken by others do no harm.
    pub(super) fn handle_news(&mut self, news: News, now: Duration) {
        match news {
            News::LinkGone(index) if index == self.link.index => {
                self.lose_link();
                self.refresh_link();
            }
            // While ours is gone any other may be the one that has one of its names now.
            News::Link(index) if index == self.link.index || self.gone => self.refresh_link(),
            News::Neighbour(index, address) if index == self.link.index => {
                self.refresh_neighbour(address, now);
            }
            News::Link(_) | News::LinkGone(_) | News::Neighbour(..) => {}
            News::Routes => {
                self.reroute_wanted = true;
                self.writer.wake_follower();
            }
            News::Anything => {
                self.reroute_wanted = true;
                self.refresh_link();
            }
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Duration) {
        if self.reroute_wanted && now >= self.reroute_not_before {
            self.reroute_wanted = false;
            self.reroute_not_before = now + REROUTE_PAUSE;
            self.check_sources();
            for entry in self.destinations.values_mut() {
                entry.refresh_at = now;
            }
        }
        let due = |(destination, entry): (&HostAddr, &Destination)| {
            (entry.refresh_at <= now).then_some(*destination)
        };
        let due: Vec<HostAddr> = self.destinations.iter().filter_map(due).take(BATCH).collect();
        for destination in due {
            if self.is_forgettable(destination, now) {
                self.forget(destination);
            } else {
                self.refresh(destination, now);
            }
        }
        self.expire_waiters(now);
        self.look(now);
    }

    /// When [`Resolver::handle_timeout`] has something to do; `None` for never.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let refresh = self.destinations.values().map(|entry| entry.refresh_at);
        let deadlines = self.waiters.iter().map(|waiter| waiter.deadline);
        let reroute = self.reroute_wanted.then_some(self.reroute_not_before);
        let search = self.search.poll_timeout(self.looked_at);
        refresh.chain(deadlines).chain(reroute).chain(search).min()
    }

    /// Asks the kernel for the route and the neighbour, and publishes what follows.
    fn refresh(&mut self, destination: HostAddr, now: Duration) {
        self.refresh_for(TenantIndex::HOST, destination, now);
    }

    /// The same. If nobody has asked before, the destination's place is the tenant's.
    fn refresh_for(&mut self, tenant: TenantIndex, destination: HostAddr, now: Duration) {
        let (state, hold) = match self.ask(destination) {
            Ok(state) => (state, REFRESH),
            Err(failure) => (State::Failed(failure), FAILED_HOLD),
        };
        let entry = self.destinations.entry(destination).or_insert_with(|| {
            self.shares.take(tenant, 1);
            let (told, wanted_at, asked_at, refresh_at) = (None, now, now, now);
            Destination { state, told, wanted_at, asked_at, refresh_at, tenant }
        });
        let old = entry.state;
        entry.state = state;
        entry.asked_at = now;
        entry.refresh_at = now + hold;
        self.release_next_hop(old);
        self.publish(destination);
        if let State::Failed(failure) = state {
            self.fail_waiters(destination, failure);
        }
    }

    fn ask(&mut self, destination: HostAddr) -> Result<State, Failure> {
        let route = self.route(destination)?;
        let next_hop = route.gateway.unwrap_or(destination.ip());
        let neighbour = self
            .kernel
            .neighbour(self.link.index, next_hop)
            .map_err(|error| failure("asking for the neighbour entry", &error))?;
        self.kernel
            .use_neighbour(self.link.index, next_hop)
            .map_err(|error| failure("asking the kernel to resolve the neighbour", &error))?;
        self.set_neighbour(next_hop, neighbour);
        Ok(State::Routed { next_hop, mtu: route.mtu })
    }

    /// The route to `destination`, if frames on our interface follow it.
    fn route(&mut self, destination: HostAddr) -> Result<Route, Failure> {
        if !is_one_host(destination.ip()) {
            return Err(Failure::NotUnicast);
        }
        if self.gone {
            return Err(Failure::InterfaceGone);
        }
        if !self.link.running {
            return Err(Failure::LinkDown);
        }
        let flow = self.flow(destination);
        if let Some(source) = flow.source.filter(|&it| self.ways.is_gone(it)) {
            return Err(Failure::SourceGone { source });
        }
        let bound = Flow { is_bound: true, ..flow };
        let preferred = self.ask_route(flow);
        let elsewhere = match preferred {
            Ok(route) => match route.kind {
                RouteKind::Unicast if route.interface == self.link.index => return Ok(route),
                RouteKind::Local => return Err(Failure::ThisHost),
                RouteKind::NotUnicast => return Err(Failure::NotUnicast),
                RouteKind::Forbidden => Failure::NoRoute,
                RouteKind::Unicast => Failure::WrongInterface { index: route.interface },
            },
            Err(failure) => failure,
        };
        // The kernel would take another interface, and ours would do if it has a route that is as
        // good: the next hop of several that is ours, or a second link into the same network. So
        // goes what a socket sends that is bound to it.
        let Ok(prefix) = self.kernel.route_prefix(bound) else { return Err(elsewhere) };
        let is_worse = matches!(elsewhere, Failure::WrongInterface { .. })
            && self.kernel.route_prefix(flow).is_ok_and(|preferred| prefix < preferred);
        if is_worse {
            return Err(elsewhere);
        }
        match self.ask_route(bound) {
            Ok(route) if route.kind == RouteKind::Unicast && route.interface == self.link.index => {
                Ok(route)
            }
            _ => Err(elsewhere),
        }
    }

    fn ask_route(&mut self, flow: Flow) -> Result<Route, Failure> {
        self.kernel.route(flow).map_err(|error| {
            if is_no_route(&error) {
                Failure::NoRoute
            } else {
                failure("asking for the route", &error)
            }
        })
    }

    /// Returns the flow from us to `destination`. In a VRF, and where addresses mean nothing
    /// without an interface, only what is bound to ours goes by its routes.
    fn flow(&self, destination: HostAddr) -> Flow {
        let is_link_local =
            matches!(destination.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local());
        Flow {
            source: self.sources.toward(destination),
            destination,
            interface: self.link.index,
            is_bound: is_link_local || self.link.in_vrf,
        }
    }

    /// Puts the path into the table if there is one, else takes it out.
    fn publish(&mut self, destination: HostAddr) {
        let path = self.path(destination);
        self.tell(destination, path);
        self.tell_narrow(destination);
        let Some(path) = path else {
            self.writer.remove(destination);
            return;
        };
        let inserted = self.writer.insert(destination, path);
        debug_assert!(inserted.is_ok(), "there are no more destinations than places");
        self.waiters.retain(|waiter| {
            let served = waiter.destination == destination;
            if served {
                // The caller may have gone away; then nobody needs to know.
                let _ = waiter.reply.send(Ok(path));
            }
            !served
        });
    }

    /// Says to the engines and to others whether the way carries less than the interface.
    fn tell_narrow(&mut self, peer: HostAddr) {
        let device_mtu = self.link.mtu;
        let of_route = match self.destinations.get(&peer).map(|it| it.state) {
            Some(State::Routed { mtu, .. }) => mtu,
            _ => None,
        };
        let mtu = [of_route, self.search.known(peer)].into_iter().flatten().min();
        let narrow = mtu.filter(|&mtu| mtu < device_mtu);
        self.ways.set_narrow(peer, narrow.map(|mtu| NarrowPath { peer, mtu, device_mtu }));
        self.writer.set_watching(!self.search.is_empty() || self.ways.has_narrow());
    }

    /// Says what has changed, and nothing each time that it was asked for again.
    fn tell(&mut self, destination: HostAddr, path: Option<Path>) {
        let Some(entry) = self.destinations.get_mut(&destination) else { return };
        if entry.told == path {
            return;
        }
        match path {
            Some(Path { next_hop_mac, mtu, .. }) => {
                let [a, b, c, d, e, f] = next_hop_mac;
                let mac = format_args!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
                tracing::info!(%destination, next_hop = %mac, mtu, "path found or changed");
            }
            None => tracing::info!(%destination, "path lost"),
        }
        entry.told = path;
    }

    fn path(&self, destination: HostAddr) -> Option<Path> {
        let State::Routed { next_hop, mtu } = self.destinations.get(&destination)?.state else {
            return None;
        };
        let next_hop_mac = self.neighbours.get(&next_hop).copied().and_then(Neighbour::usable)?;
        let source_mac = self.link.mac.filter(|_| self.link.running)?;
        let limits = [mtu, self.search.limit(destination)].into_iter().flatten();
        let mtu = limits.fold(self.link.mtu, u32::min);
        Some(Path { source_mac, next_hop_mac, mtu })
    }

    /// Forgets what was known of the interface.
    fn lose_link(&mut self) {
        if !self.gone {
            let Link { name, index, .. } = &self.link;
            tracing::warn!(interface = &**name, index, "interface gone");
        }
        (self.gone, self.link.running) = (true, false);
        // Another interface has other neighbours, under the same addresses.
        self.neighbours.clear();
        self.publish_link();
    }

    fn refresh_link(&mut self) {
        let (ran, mtu, index) = (self.link.running, self.link.mtu, self.link.index);
        let found = if self.gone { self.link_by_name() } else { self.kernel.link(index) };
        match found {
            Ok(link) => {
                let (was, is) = (&*self.link.name, &*link.name);
                if !self.gone && was != is {
                    tracing::info!(was, is, index, "interface renamed");
                }
                self.link = link;
            }
            Err(error) if is_no_link(&error) && !self.gone => {
                // Another one may have its name already.
                self.lose_link();
                return self.refresh_link();
            }
            Err(error) if is_no_link(&error) => return,
            // Unknown for the moment: nothing can be promised about it.
            Err(_) => self.link.running = false,
        }
        let came_back = core::mem::take(&mut self.gone);
        if came_back || self.link.running != ran || self.link.mtu != mtu {
            let Link { name, index, running, mtu, .. } = &self.link;
            tracing::info!(interface = &**name, index, running, mtu, came_back, "link changed");
        }
        self.publish_link();
        if self.link.running && !ran {
            self.reroute_wanted = true;
        }
    }

    /// An interface that has come back: under the last name of the one that is gone, or under the
    /// one that was asked for.
    fn link_by_name(&mut self) -> io::Result<Link> {
        match self.kernel.link_by_name(&self.link.name) {
            Err(error) if is_no_link(&error) && self.name != self.link.name => {
                self.kernel.link_by_name(&self.name)
            }
            found => found,
        }
    }

    /// Tells readers of the table, and those who wait, how the interface is doing.
    fn publish_link(&mut self) {
        let (state, failure) = match (self.gone, self.link.running) {
            (true, _) => (LinkState::Gone, Some(Failure::InterfaceGone)),
            (false, false) => (LinkState::Down, Some(Failure::LinkDown)),
            (false, true) => (LinkState::Up, None),
        };
        self.writer.set_interface_index(self.link.index);
        self.writer.set_interface_mtu(self.link.mtu);
        self.writer.set_interface_mac(self.link.mac.filter(|_| !self.gone));
        self.writer.set_link(state);
        for destination in self.all_destinations() {
            self.publish(destination);
            if let Some(failure) = failure {
                self.fail_waiters(destination, failure);
            }
        }
        self.writer.wake_follower();
    }

    fn refresh_neighbour(&mut self, address: IpAddr, now: Duration) {
        let Some(old) = self.neighbours.get(&address).copied() else { return };
        // An entry that cannot be asked for is as good as none; the next refresh asks again.
        let new = self.kernel.neighbour(self.link.index, address).unwrap_or(None);
        self.set_neighbour(address, new);
        let failed = matches!(new, Some(Neighbour { state: NeighbourState::Failed, .. }));
        let lost = old.usable().is_some() && !is_usable(&self.neighbours, address);
        for destination in self.all_destinations() {
            let Some(entry) = self.destinations.get_mut(&destination) else { continue };
            if !matches!(entry.state, State::Routed { next_hop, .. } if next_hop == address) {
                continue;
            }
            if lost {
                // It no longer answers at its old address, or somebody deleted the entry: look for
                // it afresh, as the kernel would for its own next packet.
                entry.refresh_at = now;
            }
            self.publish(destination);
            if failed && !lost {
                self.fail_unresolved(destination, address);
            }
        }
    }

    fn set_neighbour(&mut self, address: IpAddr, neighbour: Option<Neighbour>) {
        let none = Neighbour { state: NeighbourState::None, mac: None };
        self.neighbours.insert(address, neighbour.unwrap_or(none));
    }

    /// Whether nobody needs this destination any longer.
    fn is_forgettable(&mut self, destination: HostAddr, now: Duration) -> bool {
        if self.waiters.iter().any(|waiter| waiter.destination == destination) {
            return false;
        }
        let used = self.writer.take_used(destination);
        let Some(entry) = self.destinations.get_mut(&destination) else { return true };
        if used {
            entry.wanted_at = now;
        }
        let idle = now.saturating_sub(entry.wanted_at);
        match entry.state {
            State::Failed(_) => entry.wanted_at <= entry.asked_at,
            State::Routed { next_hop, .. } if is_usable(&self.neighbours, next_hop) => idle >= IDLE,
            State::Routed { .. } => idle >= UNRESOLVED_IDLE,
        }
    }

    fn forget(&mut self, destination: HostAddr) {
        self.writer.remove(destination);
        tracing::debug!(%destination, "path forgotten: nobody uses it");
        if let Some(entry) = self.destinations.remove(&destination) {
            self.shares.give_back(entry.tenant, 1);
            self.release_next_hop(entry.state);
        }
        self.tell_narrow(destination);
    }

    /// Drops what is known about a next hop that no destination uses any longer.
    fn release_next_hop(&mut self, state: State) {
        let State::Routed { next_hop, .. } = state else { return };
        let in_use = |entry: &Destination| matches!(entry.state, State::Routed { next_hop: other, .. } if other == next_hop);
        if !self.destinations.values().any(in_use) {
            self.neighbours.remove(&next_hop);
        }
    }

    fn expire_waiters(&mut self, now: Duration) {
        let expired = |waiter: &Waiter| (waiter.deadline <= now).then_some(waiter.destination);
        let expired: Vec<HostAddr> = self.waiters.iter().filter_map(expired).collect();
        for destination in expired {
            match self.destinations.get(&destination).map(|entry| entry.state) {
                Some(State::Routed { next_hop, .. }) => {
                    let error = |interface| PathError::NeighbourUnresolved { next_hop, interface };
                    self.answer(destination, now, error);
                }
                Some(State::Failed(failure)) => self.fail_waiters(destination, failure),
                None => self.fail_waiters(destination, Failure::NoRoute),
            }
        }
    }

    fn fail_unresolved(&mut self, destination: HostAddr, next_hop: IpAddr) {
        let error = |interface| PathError::NeighbourUnresolved { next_hop, interface };
        self.answer(destination, Duration::MAX, error);
    }

    /// Sends an error, made with the interface's name, to those who wait for `destination` and
    /// whose deadline is not after `now`.
    fn answer(
        &mut self,
        destination: HostAddr,
        now: Duration,
        error: impl Fn(Box<str>) -> PathError,
    ) {
        self.waiters.retain(|waiter| {
            let answered = waiter.destination == destination && waiter.deadline <= now;
            if answered {
                // The caller may have gone away; then nobody needs to know.
                let _ = waiter.reply.send(Err(error(self.link.name.clone())));
            }
            !answered
        });
    }

    fn fail_waiters(&mut self, destination: HostAddr, failure: Failure) {
        while let Some(index) = self.waiters.iter().position(|w| w.destination == destination) {
            let waiter = self.waiters.swap_remove(index);
            // The caller may have gone away; then nobody needs to know.
            let _ = waiter.reply.send(Err(self.error(destination, failure)));
        }
    }

    fn error(&mut self, destination: HostAddr, failure: Failure) -> PathError {
        let interface = self.link.name.clone();
        match failure {
            Failure::NoRoute => PathError::NoRoute { destination },
            Failure::NotUnicast => PathError::NotUnicast { destination },
            Failure::WrongInterface { index } => {
                let route_interface = match self.kernel.link(index) {
                    Ok(link) => link.name,
                    Err(_) => format!("number {index}").into(),
                };
                PathError::WrongInterface { destination, interface, route_interface }
            }
            Failure::ThisHost => PathError::ThisHost { destination, interface },
            Failure::SourceGone { source } => {
                PathError::SourceGone { source_address: source, interface }
            }
            Failure::LinkDown => PathError::LinkDown { interface },
            Failure::InterfaceGone => PathError::InterfaceGone { interface },
            Failure::Kernel { doing, errno } => {
                let source = io::Error::from_raw_os_error(errno);
                PathError::Kernel { doing, destination, source }
            }
        }
    }

    fn all_destinations(&self) -> Vec<HostAddr> {
        self.destinations.keys().copied().collect()
    }
}

impl<K> Drop for Resolver<K> {
    /// Nobody follows changes any longer, so nothing may be promised to readers.
    fn drop(&mut self) {
        for destination in self.destinations.keys() {
            self.writer.remove(*destination);
        }
        self.writer.set_link(LinkState::Down);
        self.writer.set_interface_mac(None);
    }
}

fn is_usable(neighbours: &BTreeMap<IpAddr, Neighbour>, address: IpAddr) -> bool {
    neighbours.get(&address).is_some_and(|neighbour| neighbour.usable().is_some())
}

/// Whether an address could be one host's, as far as the address alone tells. The kernel would take
/// the unspecified address for loopback.
fn is_one_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || is_broadcast)
}

/// There is no such interface.
fn is_no_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV) || error.kind() == io::ErrorKind::NotFound
}

/// No route, or a route of type unreachable, prohibit or blackhole.
fn is_no_route(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL))
}

fn failure(doing: &'static str, error: &io::Error) -> Failure {
    // Only an answer that could not be understood has no number.
    Failure::Kernel { doing, errno: error.raw_os_error().unwrap_or(libc::EBADMSG) }
}

#[cfg(test)]
mod tests;
