//! The resolver against a made-up kernel: what is asked when, and what is published.

use std::{
    cell::RefCell,
    net::Ipv4Addr,
    rc::Rc,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
};

use super::*;
use crate::device::net::PathTable;

const OURS: u32 = 7;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A kernel that routes everything on the link and knows the neighbours it was told of.
#[derive(Debug)]
struct Facts {
    link: Option<Link>,
    /// Another name that it has.
    also: Option<&'static str>,
    route: Result<Route, i32>,
    /// That of a socket which is bound to our interface, and how long its prefix is; that of the
    /// other has 16 bits.
    bound: Option<Route>,
    bound_prefix: u8,
    own: Vec<HostAddr>,
    neighbours: BTreeMap<IpAddr, Neighbour>,
    /// The calls of `use_neighbour`.
    used: Vec<IpAddr>,
    use_error: Option<i32>,
    routes_asked: usize,
    addresses_asked: usize,
}

#[derive(Clone, Debug)]
struct FakeKernel(Rc<RefCell<Facts>>);

impl Kernel for FakeKernel {
    fn link(&mut self, index: u32) -> io::Result<Link> {
        let facts = self.0.borrow();
        match &facts.link {
            Some(link) if link.index == index => Ok(link.clone()),
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    fn link_by_name(&mut self, name: &str) -> io::Result<Link> {
        let facts = self.0.borrow();
        match &facts.link {
            Some(link) if &*link.name == name || facts.also == Some(name) => Ok(link.clone()),
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    fn route(&mut self, flow: Flow) -> io::Result<Route> {
        let mut facts = self.0.borrow_mut();
        if flow.is_bound {
            return facts.bound.ok_or_else(|| io::Error::from_raw_os_error(libc::ENETUNREACH));
        }
        facts.routes_asked += 1;
        facts.route.map_err(io::Error::from_raw_os_error)
    }

    fn route_prefix(&mut self, flow: Flow) -> io::Result<u8> {
        let facts = self.0.borrow();
        let none = || io::Error::from_raw_os_error(libc::ENETUNREACH);
        if flow.is_bound {
            facts.bound.map(|_| facts.bound_prefix).ok_or_else(none)
        } else {
            Ok(16)
        }
    }

    fn has_address(&mut self, address: HostAddr, _interface: u32) -> io::Result<bool> {
        let mut facts = self.0.borrow_mut();
        facts.addresses_asked += 1;
        Ok(facts.own.contains(&address))
    }

    fn neighbour(&mut self, _interface: u32, address: IpAddr) -> io::Result<Option<Neighbour>> {
        Ok(self.0.borrow().neighbours.get(&address).copied())
    }

    fn use_neighbour(&mut self, _interface: u32, address: IpAddr) -> io::Result<()> {
        let mut facts = self.0.borrow_mut();
        facts.used.push(address);
        facts.use_error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}

/// A resolver, its kernel and its table; time is a field.
struct Bench {
    facts: Rc<RefCell<Facts>>,
    resolver: Resolver<FakeKernel>,
    table: Arc<PathTable>,
    now: Duration,
}

impl Bench {
    fn new() -> Self {
        Self::opened_as("rma0")
    }

    /// The interface `rma0`, opened by this name, which may be another that it has.
    fn opened_as(name: &str) -> Self {
        let link = Link {
            index: OURS,
            name: "rma0".into(),
            mac: Some(OUR_MAC),
            mtu: 1500,
            up: true,
            running: true,
            rx_queues: 1,
            in_vrf: false,
        };
        let facts = Rc::new(RefCell::new(Facts {
            link: Some(link.clone()),
            also: None,
            route: Ok(on_link()),
            bound: None,
            bound_prefix: 0,
            own: Vec::new(),
            neighbours: BTreeMap::new(),
            used: Vec::new(),
            use_error: None,
            routes_asked: 0,
            addresses_asked: 0,
        }));
        let (table, writer) = PathTable::new(link.mtu);
        let kernel = FakeKernel(Rc::clone(&facts));
        let resolver = Resolver::new(kernel, name, link, writer, Arc::default());
        Self { facts, resolver, table, now: Duration::from_secs(1000) }
    }

    fn neighbour(&mut self, address: HostAddr, state: NeighbourState, mac: Option<[u8; 6]>) {
        self.facts.borrow_mut().neighbours.insert(address.ip(), Neighbour { state, mac });
        self.resolver.handle_news(News::Neighbour(OURS, address.ip()), self.now);
    }

    fn reachable(&mut self, address: HostAddr) {
        self.neighbour(address, NeighbourState::Reachable, Some(PEER_MAC));
    }

    fn request(&mut self, destination: HostAddr) {
        self.request_for(TenantIndex::HOST, destination);
    }

    fn request_for(&mut self, tenant: TenantIndex, destination: HostAddr) {
        self.table.request(tenant, destination);
        self.resolver.handle_requests(self.now);
    }

    fn resolve(&mut self, destination: HostAddr) -> Receiver<Result<Path, PathError>> {
        let (reply, answer) = mpsc::sync_channel(1);
        let deadline = self.now + Duration::from_secs(3);
        self.resolver.resolve(destination, self.now, deadline, reply);
        answer
    }

    /// Lets time pass, doing on the way what is due.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(due) = self.resolver.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.resolver.handle_timeout(self.now);
        }
        self.now = end;
    }

    fn take_used(&self) -> Vec<IpAddr> {
        std::mem::take(&mut self.facts.borrow_mut().used)
    }
}

fn on_link() -> Route {
    Route { kind: RouteKind::Unicast, interface: OURS, gateway: None, source: None, mtu: None }
}

fn host(last: u8) -> HostAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

const PATH: Path = Path { source_mac: OUR_MAC, next_hop_mac: PEER_MAC, mtu: 1500 };

#[test]
fn a_known_neighbour_is_published_at_once_and_told_that_it_is_used() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.request(host(2));
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
    assert_eq!(bench.take_used(), [host(2).ip()]);
}

#[test]
fn an_unknown_neighbour_is_published_when_the_kernel_has_resolved_it() {
    let mut bench = Bench::new();
    let answer = bench.resolve(host(2));
    assert_eq!(bench.take_used(), [host(2).ip()]);
    assert!(answer.try_recv().is_err());
    bench.neighbour(host(2), NeighbourState::Incomplete, None);
    assert_eq!(bench.table.lookup(host(2)), None);
    bench.reachable(host(2));
    assert_eq!(answer.try_recv().unwrap().unwrap(), PATH);
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
}

#[test]
fn a_stale_neighbour_is_used_and_goes_on_being_probed() {
    let mut bench = Bench::new();
    bench.neighbour(host(2), NeighbourState::Stale, Some(PEER_MAC));
    bench.request(host(2));
    bench.take_used();
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
    bench.pass(REFRESH * 3);
    assert_eq!(bench.take_used().len(), 3);
}

#[test]
fn a_neighbour_that_failed_is_withdrawn_and_looked_for_afresh() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.request(host(2));
    bench.take_used();
    bench.neighbour(host(2), NeighbourState::Failed, None);
    assert_eq!(bench.table.lookup(host(2)), None);
    bench.pass(Duration::ZERO);
    assert_eq!(bench.take_used(), [host(2).ip()]);
    // It fails again: nothing more until somebody asks or the usual time has come.
    bench.neighbour(host(2), NeighbourState::Failed, None);
    bench.pass(Duration::from_secs(1));
    assert!(bench.take_used().is_empty());
    bench.request(host(2));
    assert_eq!(bench.take_used(), [host(2).ip()]);
}

#[test]
fn requests_for_a_silent_destination_do_not_each_cost_a_question() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.request(host(2));
    }
    assert_eq!(bench.facts.borrow().routes_asked, 1);
    bench.now += NUDGE;
    bench.request(host(2));
    assert_eq!(bench.facts.borrow().routes_asked, 2);
}

#[test]
fn requests_for_a_destination_without_route_do_not_each_cost_a_question() {
    let mut bench = Bench::new();
    bench.facts.borrow_mut().route = Err(libc::ENETUNREACH);
    for _ in 0..100 {
        bench.request(host(2));
        bench.pass(FAILED_HOLD / 200);
    }
    assert_eq!(bench.facts.borrow().routes_asked, 1);
    // Somebody still asks: the route is looked for again after the hold.
    bench.facts.borrow_mut().route = Ok(on_link());
    bench.reachable(host(2));
    bench.pass(FAILED_HOLD);
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
}

#[test]
fn a_prepared_destination_is_published_before_anybody_sends_to_it_and_forgotten_if_nobody_does() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.resolver.prepare(host(2), bench.now);
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
    bench.pass(IDLE * 2 + REFRESH * 2);
    assert_eq!(bench.resolver.poll_timeout(), None, "nothing is followed any more");
    assert_eq!(bench.table.lookup(host(2)), None);
}

#[test]
fn prepared_destinations_leave_half_of_the_table_to_those_that_are_asked_for() {
    let mut bench = Bench::new();
    let far = |number: usize| HostAddr::from(Ipv4Addr::from_bits(0xc612_0000 + number as u32));
    bench.reachable(host(2));
    bench.facts.borrow_mut().route = Ok(Route { gateway: Some(host(2).ip()), ..on_link() });
    for number in 0..DESTINATIONS_MAX {
        bench.resolver.prepare(far(number), bench.now);
        let found = bench.table.lookup(far(number)).is_some();
        assert_eq!(found, number < PREPARED_UP_TO, "{number}");
    }
    for number in PREPARED_UP_TO..DESTINATIONS_MAX {
        bench.request(far(number));
        assert_eq!(bench.table.lookup(far(number)), Some(PATH), "{number}");
    }
}

/// Nobody answers at any address that the one goes to.
#[test]
fn a_tenant_that_goes_to_many_unknown_hosts_pushes_out_no_look_up_of_another() {
    let mut bench = Bench::new();
    let [one, other] = [1, 2].map(TenantIndex::of);
    let of = |net: u32, number: usize| HostAddr::from(Ipv4Addr::from_bits(net + number as u32));
    let (nowhere, there) = (|number| of(0xc612_0000, number), |number| of(0xc613_0000, number));
    for number in 0..2 * DESTINATIONS_MAX {
        bench.request_for(one, nowhere(number));
    }
    assert_eq!(bench.resolver.destinations.len(), DESTINATIONS_MAX, "alone it has all");
    let floor = DESTINATIONS_MAX / 2 / 3;
    for number in 0..floor {
        bench.request_for(other, there(number));
        bench.request_for(one, nowhere(2 * DESTINATIONS_MAX + number));
        bench.reachable(there(number));
        assert_eq!(bench.table.lookup(there(number)), Some(PATH), "{number}");
    }
    assert_eq!(bench.resolver.destinations.len(), DESTINATIONS_MAX);
    // What nobody answers for and nobody goes to any more is forgotten: all places come back.
    bench.pass(IDLE + UNRESOLVED_IDLE + REFRESH);
    assert!(bench.resolver.destinations.is_empty());
}

/// All of them lie behind a gateway that answers, so each is found at once.
#[test]
fn a_tenant_that_goes_to_all_hosts_behind_a_gateway_makes_room_for_another() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.facts.borrow_mut().route = Ok(Route { gateway: Some(host(2).ip()), ..on_link() });
    let [one, other] = [1, 2].map(TenantIndex::of);
    let far = |number: usize| HostAddr::from(Ipv4Addr::from_bits(0xc612_0000 + number as u32));
    for number in 0..DESTINATIONS_MAX {
        bench.request_for(one, far(number));
    }
    assert_eq!(bench.table.lookup(far(DESTINATIONS_MAX - 1)), Some(PATH));
    for number in 0..DESTINATIONS_MAX / 2 / 3 {
        let there = far(DESTINATIONS_MAX + number);
        bench.request_for(other, there);
        assert_eq!(bench.table.lookup(there), Some(PATH), "{number}");
    }
    assert_eq!(bench.resolver.destinations.len(), DESTINATIONS_MAX);
}

#[test]
fn waiters_get_the_kernels_verdict_on_a_silent_neighbour() {
    let mut bench = Bench::new();
    let first = bench.resolve(host(2));
    let second = bench.resolve(host(2));
    bench.neighbour(host(2), NeighbourState::Failed, None);
    for answer in [first, second] {
        let error = answer.try_recv().unwrap().unwrap_err();
        assert!(matches!(error, PathError::NeighbourUnresolved { .. }), "{error}");
    }
}

#[test]
fn a_waiter_is_answered_at_its_deadline_and_not_before() {
    let mut bench = Bench::new();
    let answer = bench.resolve(host(2));
    bench.pass(Duration::from_millis(2999));
    assert!(answer.try_recv().is_err());
    bench.pass(Duration::from_millis(1));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, PathError::NeighbourUnresolved { .. }), "{error}");
}

#[test]
fn old_news_of_a_failure_do_not_fail_a_resolution_that_is_under_way() {
    let mut bench = Bench::new();
    let answer = bench.resolve(host(2));
    // The news said "failed", but by now the kernel is asking again.
    let asking = Neighbour { state: NeighbourState::Incomplete, mac: None };
    bench.facts.borrow_mut().neighbours.insert(host(2).ip(), asking);
    bench.resolver.handle_news(News::Neighbour(OURS, host(2).ip()), bench.now);
    assert!(answer.try_recv().is_err());
}

#[test]
fn the_least_mtu_of_interface_and_route_wins_and_follows_the_interface() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.facts.borrow_mut().route = Ok(Route { mtu: Some(1400), ..on_link() });
    bench.request(host(2));
    assert_eq!(bench.table.lookup(host(2)).unwrap().mtu, 1400);
    for (interface, expected) in [(1300, 1300), (9000, 1400)] {
        bench.facts.borrow_mut().link.as_mut().unwrap().mtu = interface;
        bench.resolver.handle_news(News::Link(OURS), bench.now);
        assert_eq!(bench.table.interface_mtu(), interface);
        assert_eq!(bench.table.lookup(host(2)).unwrap().mtu, expected);
    }
}

#[test]
fn a_route_change_moves_destinations_to_the_new_gateway() {
    let mut bench = Bench::new();
    let far: HostAddr = Ipv4Addr::new(198, 51, 100, 1).into();
    bench.reachable(host(2));
    bench.facts.borrow_mut().route = Ok(Route { gateway: Some(host(2).ip()), ..on_link() });
    bench.request(far);
    assert_eq!(bench.table.lookup(far), Some(PATH));

    let other = [2, 0, 0, 0, 0, 3];
    bench.neighbour(host(3), NeighbourState::Reachable, Some(other));
    bench.facts.borrow_mut().route = Ok(Route { gateway: Some(host(3).ip()), ..on_link() });
    bench.resolver.handle_news(News::Routes, bench.now);
    bench.pass(Duration::ZERO);
    assert_eq!(bench.table.lookup(far), Some(Path { next_hop_mac: other, ..PATH }));

    // The old gateway is nothing to us any longer.
    bench.take_used();
    bench.neighbour(host(2), NeighbourState::Failed, None);
    bench.pass(Duration::ZERO);
    assert!(bench.take_used().is_empty());
    assert!(bench.table.lookup(far).is_some());
}

#[test]
fn a_storm_of_route_news_asks_for_routes_and_addresses_at_a_bounded_rate() {
    let mut bench = Bench::new();
    bench.resolver.set_sources(host(1).into());
    bench.facts.borrow_mut().own.push(host(1));
    bench.pass(Duration::from_millis(100));
    bench.reachable(host(2));
    bench.request(host(2));
    let asked = |bench: &Bench| {
        let facts = bench.facts.borrow();
        [facts.routes_asked, facts.addresses_asked]
    };
    let before = asked(&bench);
    for _ in 0..1000 {
        bench.resolver.handle_news(News::Routes, bench.now);
        bench.pass(Duration::from_micros(100));
    }
    for (after, before) in asked(&bench).into_iter().zip(before) {
        assert!((5..=7).contains(&(after - before)), "{} questions in 100 ms", after - before);
    }
}

#[test]
fn without_link_nothing_is_published_and_waiters_are_told() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.request(host(2));
    let waiting = bench.resolve(host(3));
    bench.facts.borrow_mut().link.as_mut().unwrap().running = false;
    bench.resolver.handle_news(News::Link(OURS), bench.now);
    assert_eq!(bench.table.lookup(host(2)), None);
    assert!(!bench.table.is_link_up());
    let error = waiting.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, PathError::LinkDown { .. }), "{error}");
    let error = bench.resolve(host(2)).try_recv().unwrap().unwrap_err();
    assert!(matches!(error, PathError::LinkDown { .. }), "{error}");

    // While the engine goes on asking, the link comes back.
    bench.request(host(2));
    bench.facts.borrow_mut().link.as_mut().unwrap().running = true;
    bench.resolver.handle_news(News::Link(OURS), bench.now);
    bench.pass(FAILED_HOLD);
    bench.request(host(2));
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
}

#[test]
fn an_interface_that_vanished_is_a_link_that_is_down() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.request(host(2));
    bench.facts.borrow_mut().link = None;
    bench.resolver.handle_news(News::Anything, bench.now);
    bench.pass(REFRESH);
    assert_eq!(bench.table.lookup(host(2)), None);
    assert!(!bench.table.is_link_up());
}

#[test]
fn news_of_other_interfaces_and_neighbours_change_nothing() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.request(host(2));
    bench.take_used();
    bench.facts.borrow_mut().neighbours.clear();
    for news in [
        News::Link(OURS + 1),
        News::Neighbour(OURS + 1, host(2).ip()),
        News::Neighbour(OURS, host(9).ip()),
    ] {
        bench.resolver.handle_news(news, bench.now);
    }
    bench.pass(Duration::ZERO);
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
    assert!(bench.take_used().is_empty());
}

#[test]
fn an_idle_destination_is_forgotten_and_a_used_one_is_not() {
    let mut bench = Bench::new();
    for last in [2, 3] {
        bench.reachable(host(last));
        bench.request(host(last));
    }
    for _ in 0..(IDLE.as_secs() / REFRESH.as_secs() + 2) {
        assert!(bench.table.lookup(host(2)).is_some());
        bench.pass(REFRESH);
    }
    assert!(bench.table.lookup(host(2)).is_some());
    assert!(bench.table.lookup(host(3)).is_none());
    assert_eq!(bench.resolver.destinations.len(), 1);
    assert_eq!(bench.resolver.neighbours.len(), 1);
}

#[test]
fn destinations_that_never_answer_give_their_places_back() {
    let mut bench = Bench::new();
    for number in 0..DESTINATIONS_MAX as u32 {
        bench.request(Ipv4Addr::from(0x0a00_0000 + number).into());
    }
    let error = bench.resolve(host(2)).try_recv().unwrap().unwrap_err();
    assert!(matches!(error, PathError::TableFull { .. }), "{error}");
    bench.pass(UNRESOLVED_IDLE + REFRESH);
    assert_eq!(bench.resolver.destinations.len(), 0);
    bench.reachable(host(2));
    assert_eq!(bench.resolve(host(2)).try_recv().unwrap().unwrap(), PATH);
}

#[test]
fn a_full_table_keeps_refreshing_in_bounded_turns() {
    let mut bench = Bench::new();
    for number in 0..DESTINATIONS_MAX as u32 {
        bench.request(Ipv4Addr::from(0x0a00_0000 + number).into());
    }
    let before = bench.facts.borrow().routes_asked;
    bench.resolver.handle_news(News::Routes, bench.now);
    bench.resolver.handle_timeout(bench.now);
    assert_eq!(bench.facts.borrow().routes_asked - before, BATCH);
    bench.pass(Duration::ZERO);
    assert_eq!(bench.facts.borrow().routes_asked - before, DESTINATIONS_MAX);
}

#[test]
fn each_unsuitable_route_is_its_own_error() {
    let mut bench = Bench::new();
    let mut error = |route: Result<Route, i32>| {
        bench.facts.borrow_mut().route = route;
        bench.resolve(host(2)).try_recv().unwrap().unwrap_err()
    };
    for errno in [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL] {
        assert!(matches!(error(Err(errno)), PathError::NoRoute { .. }));
    }
    let forbidden = Route { kind: RouteKind::Forbidden, ..on_link() };
    assert!(matches!(error(Ok(forbidden)), PathError::NoRoute { .. }));
    let many = Route { kind: RouteKind::NotUnicast, ..on_link() };
    assert!(matches!(error(Ok(many)), PathError::NotUnicast { .. }));
    let other = Route { interface: OURS + 1, ..on_link() };
    assert!(matches!(error(Ok(other)), PathError::WrongInterface { .. }));
    let local = Route { kind: RouteKind::Local, ..on_link() };
    assert!(matches!(error(Ok(local)), PathError::ThisHost { .. }));
    let broken = error(Err(libc::ENOMEM));
    assert!(matches!(&broken, PathError::Kernel { .. }), "{broken}");
}

#[test]
fn a_route_out_of_our_interface_is_taken_if_it_is_as_good_as_the_kernels_own() {
    let elsewhere = Ok(Route { interface: OURS + 1, ..on_link() });
    for (route, prefix, is_taken) in [
        (elsewhere, 15, false),
        (elsewhere, 16, true),
        (elsewhere, 24, true),
        (Err(libc::ENETUNREACH), 0, true),
    ] {
        let mut bench = Bench::new();
        {
            let mut facts = bench.facts.borrow_mut();
            (facts.route, facts.bound, facts.bound_prefix) = (route, Some(on_link()), prefix);
        }
        bench.reachable(host(2));
        bench.request(host(2));
        bench.reachable(host(2));
        assert_eq!(bench.table.lookup(host(2)).is_some(), is_taken, "{route:?} {prefix}");
    }
}

#[test]
fn no_way_is_promised_from_an_address_that_is_gone_until_it_is_back() {
    let mut bench = Bench::new();
    let own = host(1);
    bench.facts.borrow_mut().own.push(own);
    bench.resolver.set_sources(own.into());
    bench.reachable(host(2));
    bench.request(host(2));
    bench.reachable(host(2));
    assert!(bench.table.lookup(host(2)).is_some());
    bench.facts.borrow_mut().own.clear();
    bench.resolver.handle_news(News::Routes, bench.now);
    bench.pass(Duration::from_secs(1));
    assert!(bench.table.lookup(host(2)).is_none());
    let error = bench.resolve(host(2)).try_recv().unwrap().unwrap_err();
    assert!(matches!(error, PathError::SourceGone { source_address, .. } if source_address == own));
    bench.facts.borrow_mut().own.push(own);
    bench.resolver.handle_news(News::Routes, bench.now);
    bench.pass(Duration::from_secs(1));
    bench.request(host(2));
    bench.reachable(host(2));
    assert!(bench.table.lookup(host(2)).is_some());
}

#[test]
fn a_limit_learnt_from_losses_is_in_the_table_and_ends_with_the_path() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.request(host(2));
    bench.reachable(host(2));
    let limits: &dyn rma_core::path_limits::PathLimits = &*bench.table.clone();
    let mtu = |bench: &Bench| bench.table.lookup(host(2)).unwrap().mtu;
    for _ in 0..2 {
        assert_eq!(mtu(&bench), 1500);
        limits.lost(host(2), 1456);
        bench.resolver.handle_losses(bench.now);
        bench.pass(Duration::from_millis(50));
    }
    assert_eq!(mtu(&bench), 1280);
    assert!(bench.table.is_watching());
    // That of the other host works for a while; then at full length.
    for _ in 0..20 {
        limits.arrived(host(2), 1228);
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(mtu(&bench), 1500, "it is asked once more");
    limits.lost(host(2), 1456);
    bench.resolver.handle_losses(bench.now);
    assert_eq!(mtu(&bench), 1280);
    assert_eq!(limits.packet_len_max(host(2)), Some(1280 - 28));
}

#[test]
fn a_missing_capability_is_an_error_that_says_what_was_refused() {
    let mut bench = Bench::new();
    bench.facts.borrow_mut().use_error = Some(libc::EPERM);
    let error = bench.resolve(host(2)).try_recv().unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("resolve the neighbour") && text.contains("not permitted"), "{text}");
}

#[test]
fn addresses_that_are_no_single_host_are_refused_without_asking() {
    let mut bench = Bench::new();
    for text in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1"] {
        let error = bench.resolve(text.parse().unwrap()).try_recv().unwrap().unwrap_err();
        assert!(matches!(error, PathError::NotUnicast { .. }), "{text}: {error}");
    }
    assert_eq!(bench.facts.borrow().routes_asked, 0);
}

#[test]
fn a_dropped_resolver_leaves_an_empty_table() {
    let mut bench = Bench::new();
    bench.reachable(host(2));
    bench.request(host(2));
    let table = Arc::clone(&bench.table);
    drop(bench);
    assert_eq!(table.lookup(host(2)), None);
    assert!(!table.is_link_up());
}

#[test]
fn an_interface_that_comes_back_under_its_name_is_followed_with_neighbours_of_its_own() {
    const AGAIN: u32 = 9;
    const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
    let mut bench = Bench::new();
    bench.request(host(2));
    bench.reachable(host(2));
    assert_eq!(bench.table.lookup(host(2)), Some(PATH));
    let link = bench.facts.borrow_mut().link.take().unwrap();
    bench.resolver.handle_news(News::LinkGone(OURS), bench.now);
    assert_eq!(bench.table.link_state(), LinkState::Gone);
    assert_eq!(bench.table.lookup(host(2)), None);
    let answer = bench.resolve(host(2));
    assert!(matches!(answer.recv().unwrap(), Err(PathError::InterfaceGone { .. })));

    // Another one is no news of ours; one of its name is, whatever else is new about it.
    bench.resolver.handle_news(News::Link(8), bench.now);
    assert_eq!(bench.table.link_state(), LinkState::Gone);
    let again = Link { index: AGAIN, mac: Some(OTHER_MAC), mtu: 3400, ..link };
    bench.facts.borrow_mut().link = Some(again);
    bench.facts.borrow_mut().route = Ok(Route { interface: AGAIN, ..on_link() });
    bench.facts.borrow_mut().neighbours.clear();
    bench.resolver.handle_news(News::Link(AGAIN), bench.now);
    assert_eq!((bench.table.link_state(), bench.table.interface_mtu()), (LinkState::Up, 3400));
    assert_eq!(bench.table.lookup(host(2)), None, "what the old one's neighbour was is forgotten");
    bench.pass(Duration::from_secs(2));
    bench.request(host(2));
    let known = Neighbour { state: NeighbourState::Reachable, mac: Some(PEER_MAC) };
    bench.facts.borrow_mut().neighbours.insert(host(2).ip(), known);
    bench.resolver.handle_news(News::Neighbour(AGAIN, host(2).ip()), bench.now);
    let path = Path { source_mac: OTHER_MAC, next_hop_mac: PEER_MAC, mtu: 3400 };
    assert_eq!(bench.table.lookup(host(2)), Some(path));
}

#[test]
fn an_interface_that_left_and_is_back_under_its_index_was_gone() {
    let mut bench = Bench::new();
    bench.request(host(2));
    bench.reachable(host(2));
    // Moved to another namespace and back before the news were read.
    bench.facts.borrow_mut().neighbours.clear();
    bench.resolver.handle_news(News::LinkGone(OURS), bench.now);
    assert_eq!(bench.table.link_state(), LinkState::Up);
    assert_eq!(bench.table.lookup(host(2)), None, "its neighbours are unknown again");
}

#[test]
fn a_renamed_interface_stays_the_one_and_is_found_again_by_either_name() {
    for (again, found) in [("rail0", true), ("rma0", true), ("third", false)] {
        let mut bench = Bench::new();
        bench.facts.borrow_mut().link.as_mut().unwrap().name = "rail0".into();
        bench.resolver.handle_news(News::Link(OURS), bench.now);
        assert_eq!(bench.table.link_state(), LinkState::Up);
        assert_eq!(bench.table.interface_index(), Some(OURS));
        let error = bench.resolver.error(host(2), Failure::LinkDown);
        assert!(error.to_string().contains("`ip link set dev rail0 up`"), "{error}");

        let link = bench.facts.borrow_mut().link.take().unwrap();
        bench.resolver.handle_news(News::LinkGone(OURS), bench.now);
        assert_eq!(bench.table.link_state(), LinkState::Gone);
        bench.facts.borrow_mut().link = Some(Link { index: 9, name: again.into(), ..link });
        bench.resolver.handle_news(News::Link(9), bench.now);
        let is_up = bench.table.link_state() == LinkState::Up;
        assert_eq!(is_up, found, "{again}");
        assert_eq!(bench.table.interface_index(), Some(if found { 9 } else { OURS }), "{again}");
    }
}

#[test]
fn an_interface_that_was_opened_by_another_name_of_its_is_found_again_by_that() {
    let mut bench = Bench::opened_as("the-name-of-its-cable");
    let link = bench.facts.borrow_mut().link.take().unwrap();
    bench.resolver.handle_news(News::LinkGone(OURS), bench.now);
    // The kernel knows it by that name; its own is another than the one before.
    bench.facts.borrow_mut().also = Some("the-name-of-its-cable");
    bench.facts.borrow_mut().link = Some(Link { index: 9, name: "eth7".into(), ..link });
    bench.resolver.handle_news(News::Link(9), bench.now);
    assert_eq!(bench.table.link_state(), LinkState::Up);
    assert_eq!(bench.table.interface_index(), Some(9));
}
