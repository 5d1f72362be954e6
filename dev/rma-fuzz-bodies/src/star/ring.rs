//! Two hosts, at each of which one application writes what it likes into its portal's memory, and
//! another keeps to the rules; on a network that does nothing wrong.

mod honest;
mod hostile;
mod place;

use rma_core::{
    addr::HostAddr,
    backend::{ReceiveLenMax, RxFrame, RxPacket, TxFrame},
    crypto::CounterBlock,
    port::{Port, SourcePort},
    quantum::Quantum,
    service::Service,
    time::Instant,
};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    counters::StarEvent,
    service::Star,
};

use crate::script::Script;
use honest::Honest;
use hostile::Hostile;
use place::{PACKET_LEN, address};

/// Longer than anything takes on this network, and much shorter than any timeout.
const TURN_NANOS: u64 = 10_000;

/// The events of a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct StarRingSeen {
    /// Rounds of SEND, WRITE and READ that the honest applications have finished.
    pub rounds: u64,
    /// Frames that were delivered.
    pub frames: u64,
    /// Posts that an engine found no sense in.
    pub refused: u64,
    /// Reports that a ring had no room for.
    pub lost: u64,
}

/// A packet on the network.
struct Packet {
    source: HostAddr,
    destination: HostAddr,
    port: Port,
    octets: Vec<u8>,
}

struct World {
    now: Instant,
    stars: [Star; 2],
    hostile: [Hostile; 2],
    honest: Honest,
    network: Vec<Packet>,
    frames: u64,
}

fn star(host: usize) -> Star {
    let mut settings = StarConfigBuilder::default();
    (settings.connections, settings.filter_entries, settings.answers) = (16, 256, 256);
    (settings.work_requests, settings.frames_under_way) = (8192, 4096);
    let mut place = StarPlace::at(address(host));
    place.receive_len_max = ReceiveLenMax::of_mtu(1500);
    let config = settings.build(place).expect("settings that work");
    Star::new(config, CounterBlock::new(0, 1 << 40))
}

impl World {
    /// Host number `z` is the stateless side of the honest applications' connection.
    fn new(z: usize) -> Self {
        let mut stars = [star(0), star(1)];
        let hostile = [0, 1].map(|host| Hostile::start(&mut stars[host], host));
        let honest = Honest::start(&mut stars, z);
        let now = Instant::from_nanos(1_000_000_000);
        let mut world = Self { now, stars, hostile, honest, network: Vec::new(), frames: 0 };
        for z in [0, 1] {
            world.hostile[z].open(z as u32, None);
            world.turn();
            let told = world.hostile[z].told_key(z as u32);
            world.hostile[1 - z].open(z as u32, told);
            world.turn();
            world.hostile[z].introduce(z as u32);
        }
        for _ in 0..8 {
            world.turn();
        }
        assert!(world.honest.is_ready(), "nobody has done anything yet");
        world
    }

    /// Everything that is on the network arrives; both engines and all honest applications have a
    /// turn.
    fn turn(&mut self) {
        self.now = Instant::from_nanos(self.now.as_nanos() + TURN_NANOS);
        let Self { now, stars, network, .. } = self;
        for packet in core::mem::take(network) {
            let Packet { source, destination, port, mut octets } = packet;
            let Some(to) = [0, 1].into_iter().find(|&it| address(it) == destination) else {
                continue;
            };
            self.frames += 1;
            let packet = RxPacket {
                source,
                destination,
                port,
                source_port: SourcePort::FIRST,
                reply_len_max: PACKET_LEN,
                link: None,
                bytes: &mut octets,
            };
            stars[to].handle_frames(*now, now, &mut [RxFrame::alone(packet)]);
        }
        for star in stars {
            star.take_commands(*now);
            star.handle_timeout(*now);
            let mut buffers = vec![[0_u8; PACKET_LEN]; 16];
            loop {
                let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
                let mut quantum = Quantum::new(1 << 16);
                let count = star.poll_transmits(*now, &mut frames, &mut quantum);
                let sent: Vec<_> = frames[..count].iter().map(|it| it.transmit).collect();
                for (transmit, octets) in sent.iter().zip(&buffers) {
                    let Some(transmit) = transmit else { continue };
                    let (source, destination) = (transmit.source, transmit.destination);
                    let (port, octets) = (transmit.port, octets[..transmit.len].to_vec());
                    network.push(Packet { source, destination, port, octets });
                }
                if count < buffers.len() {
                    break;
                }
            }
            star.wake_sleepers();
        }
        self.honest.turn(self.now);
        for hostile in &self.hostile {
            hostile.check();
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let step = script.number();
        let host = step >> 7;
        match step % 12 {
            0 | 1 => self.turn(),
            2 => {
                let nanos = script.wide() << (script.number() % 7);
                self.now = Instant::from_nanos(self.now.as_nanos() + nanos);
                self.turn();
            }
            step => self.hostile[host].step(step - 3, script),
        }
    }
}

/// See [`crate::star_ring`].
pub(in super::super) fn run(script: &mut Script<'_>) -> StarRingSeen {
    const STEPS_MAX: usize = 200;
    // A lost frame comes again after 20 ms: no more than a few are lost as tables are full.
    const TURNS_MAX: usize = 50_000;
    let mut world = World::new(script.number() % 2);
    for _ in 0..STEPS_MAX {
        if script.0.is_empty() {
            break;
        }
        world.step(script);
    }
    // Whatever the others have done, this goes on.
    let rounds = world.honest.rounds();
    for _ in 0..TURNS_MAX {
        if world.honest.rounds() > rounds + 1 {
            break;
        }
        world.turn();
    }
    assert!(world.honest.rounds() > rounds + 1, "others keep an honest application from working");
    let counted = |event| world.stars.iter().map(|star| star.counters().events(event)).sum();
    StarRingSeen {
        rounds: world.honest.rounds(),
        frames: world.frames,
        refused: counted(StarEvent::PostRefused),
        lost: counted(StarEvent::ReportLost),
    }
}
