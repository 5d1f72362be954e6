//! Devices that spread answers over engines in ways that no engine knows.

use super::*;

/// The function by which a device chooses the engine that a packet comes to.
#[derive(Clone, Copy, Debug)]
enum Hash {
    /// Everything comes to who asked.
    Right,
    Random(u64),
    /// That of most devices: a linear one, by a key, and a table of engines in turns.
    Toeplitz(u64),
    WithoutPorts,
}

impl Hash {
    fn engine(self, peer: HostAddr, port: SourcePort, engines: u64) -> u64 {
        let seen = hash(peer) << 16 | u64::from(port.0);
        match self {
            Self::Right => 0,
            Self::Random(key) => spread(seen ^ spread(key)) % engines,
            Self::Toeplitz(key) => {
                let window = |bit: u32| spread(key + u64::from(bit / 32)) >> (bit % 32);
                let set = (0..64).filter(|bit| seen >> bit & 1 == 1);
                set.fold(0, |sum, bit| sum ^ window(bit)) % 128 % engines
            }
            Self::WithoutPorts => hash(peer) % engines,
        }
    }
}

fn peer(number: u32) -> HostAddr {
    HostAddr::from((0x0a00_0000 + number).to_be_bytes())
}

/// Engine 0 of a host of so many, which sends ops to peers.
struct Asker {
    ports: LearntPorts,
    engines: u64,
    now: Instant,
}

impl Asker {
    fn new(engines: u16) -> Self {
        let (ports, now) = (LearntPorts::new(engines), Instant::from_nanos(77));
        Self { ports, engines: engines.into(), now }
    }

    /// So many ops to each of the first `peers`, in turns. Returns how many answers came to other
    /// engines.
    fn ask(&mut self, peers: u32, ops: u32, hash: Hash) -> u32 {
        let mut wrong = 0;
        for number in (0..ops).flat_map(|_| 0..peers) {
            self.now = self.now.after_nanos(1_900 + spread(self.now.as_nanos()) % 1_000);
            let port = self.ports.of_turn(peer(number), self.now);
            if hash.engine(peer(number), port, self.engines) == 0 {
                self.ports.learn(peer(number), port);
            } else {
                self.ports.forget(peer(number), port);
                wrong += 1;
            }
        }
        wrong
    }
}

#[test]
fn answers_come_right_once_ports_are_learnt_and_again_once_the_hash_has_changed() {
    const PEERS: u32 = 100;
    for hash_of in [Hash::Random, Hash::Toeplitz] {
        // Wrong answers a peer until it is learnt, and later ones in 100,000.
        for (engines, most, later) in [(2, 6, 10), (4, 18, 100), (8, 40, 300)] {
            let mut asker = Asker::new(engines);
            for hash in [1, 2].map(hash_of) {
                let learning = asker.ask(PEERS, 1_000, hash);
                let learnt = asker.ask(PEERS, 1_000, hash);
                assert!((PEERS..PEERS * most).contains(&learning), "{learning} of {engines}");
                assert!(learnt <= later, "{learnt} of 100,000 with {engines}");
            }
        }
    }
}

#[test]
fn a_device_without_ports_in_its_hash_sends_as_much_elsewhere_as_before() {
    for engines in [2, 4, 8] {
        let mut asker = Asker::new(engines);
        let wrong = asker.ask(100, 1_000, Hash::WithoutPorts);
        let elsewhere =
            (0..100).filter(|&it| !hash(peer(it)).is_multiple_of(asker.engines)).count();
        assert_eq!(wrong as usize, elsewhere * 1_000, "{engines}");
        assert_eq!(asker.ask(100, 1_000, Hash::Right), 0, "nothing wrong is learnt of it");
    }
}

#[test]
fn a_turn_has_one_port_for_a_peer_and_turns_use_all_that_are_known() {
    let (mut ports, peer) = (LearntPorts::new(2), peer(1));
    let known: Vec<_> = (0..6).map(|it| SourcePort(50_000 + it)).collect();
    for count in 0..=6 {
        let mut uses = vec![0; known.len()];
        let mut others = 0;
        for turn in 0..3_200 {
            let now = Instant::from_nanos(turn * 2_000);
            let port = ports.of_turn(peer, now);
            assert_eq!(ports.of_turn(peer, now), port);
            match known.iter().position(|&it| it == port) {
                Some(at) => uses[at] += 1,
                None => others += 1,
            }
        }
        let expected = [3_200, 200, 200, 200, 0][count.min(PORTS)];
        assert!((expected * 3 / 4..=expected * 5 / 4).contains(&others), "{count}: {others}");
        let each = 3_200 / count.clamp(1, PORTS);
        let used = &uses[..count.min(PORTS)];
        assert!(used.iter().all(|&it| it > each * 3 / 4), "{count}: {uses:?}");
        assert!(uses[count.min(PORTS)..].iter().all(|&it| it == 0), "four are enough: {uses:?}");
        if let Some(&port) = known.get(count) {
            ports.learn(peer, port);
            ports.learn(peer, port);
        }
    }
}

#[test]
fn a_port_is_used_no_more_once_it_is_forgotten() {
    let (mut ports, peer) = (LearntPorts::new(2), peer(1));
    let known = [0, 1, 2, 3].map(|it| SourcePort(50_000 + it));
    for (first, forgotten) in (0..4).flat_map(|first| (0..4).map(move |it| (first, it))) {
        known.iter().cycle().skip(first).take(4).for_each(|&port| ports.learn(peer, port));
        for after in 1..=4 {
            ports.forget(peer, known[(forgotten + after) % 4]);
            let left: Vec<_> = (after + 1..=4).map(|it| known[(forgotten + it) % 4].0).collect();
            let place = ports.find(hash(peer)).map_or(Place::EMPTY, |it| ports.places[it]);
            let mut has = place.ports[..place.known()].to_vec();
            has.sort_unstable();
            assert_eq!(has, {
                let mut left = left;
                left.sort_unstable();
                left
            });
        }
        assert!(ports.places.iter().all(|it| *it == Place::EMPTY), "the place is free again");
        // Once more is nothing.
        ports.forget(peer, known[0]);
    }
}

#[test]
fn a_table_that_is_full_keeps_most_peers_and_serves_the_others_as_before() {
    let mut ports = LearntPorts::new(8);
    let port = SourcePort(50_000);
    let known = |ports: &LearntPorts, of: core::ops::Range<u32>| {
        of.filter(|&it| ports.find(hash(peer(it))).is_some()).count()
    };
    (0..1_000).for_each(|it| ports.learn(peer(it), port));
    assert!(known(&ports, 0..1_000) >= 990, "{} of 1000", known(&ports, 0..1_000));
    (0..10_000).for_each(|it| ports.learn(peer(it), port));
    let count = known(&ports, 0..10_000);
    assert!((1_000..=LearntPorts::ENTRIES).contains(&count), "{count} of 10,000");
    assert_eq!(LearntPorts::ENTRIES * LearntPorts::ENTRY_LEN, 16 * 1024);
    let mut asker = Asker::new(8);
    asker.ask(1_000, 1_600, Hash::Random(3));
    let wrong = asker.ask(1_000, 400, Hash::Random(3));
    assert!(wrong < 400, "{wrong} of 400,000");
}

#[test]
fn one_engine_and_ports_that_nobody_chooses_teach_nothing() {
    let mut one = LearntPorts::new(1);
    one.learn(peer(1), SourcePort(50_000));
    one.forget(peer(1), SourcePort(50_000));
    assert!(!one.learns());
    let mut two = LearntPorts::new(2);
    [0, 10_472, SourcePort::FIRST.0 - 1]
        .into_iter()
        .for_each(|it| two.learn(peer(1), SourcePort(it)));
    for now in (0..1_000).map(|turn| Instant::from_nanos(turn * 700)) {
        assert_eq!(one.of_turn(peer(1), now), SourcePort::of_turn(now));
        assert_eq!(two.of_turn(peer(1), now), SourcePort::of_turn(now));
    }
}
