//! Two engines' backends on a veth interface that changes under them. Frames are sent on a queue of
//! the other end, and in native mode they come on the queue of the same number.

use rma_core::{
    addr::HostAddr,
    backend::{Backend, Transmit, TxFrame},
    op::ClassOfService,
    port::Port,
    time::Instant,
};
use rma_lab::{Lab, LabConfig};

use super::*;
use crate::device::{
    Device as AnyDevice, DeviceKeeper, OpenDevice, TrafficClasses,
    backend::{AnyBackend, HostBackend},
    net::Path,
};

const PORT: Port = Port(4791);
const ENGINES: u32 = 2;
/// Only for what never comes.
const DEADLINE: Duration = Duration::from_secs(30);

/// Both ends with so many queues of each kind.
fn with_queues(queues: u32) -> LabConfig {
    LabConfig { queues, ..LabConfig::default() }
}

fn addresses() -> [HostAddr; 2] {
    [Lab::A_V4.into(), Lab::B_V4.into()]
}

/// An engine for each queue of the first namespace's interface, each of which sends on its own.
fn senders(lab: &Lab) -> Vec<XdpBackend> {
    let mac = |netns: &rma_lab::Netns| netns.interface_mac(Lab::INTERFACE).unwrap();
    let path = Path { source_mac: mac(lab.a()), next_hop_mac: mac(lab.b()), mtu: 1500 };
    let [near, far] = addresses();
    let paths = PathTable::fixed(1500, &[(far, path)]).unwrap();
    let config = XdpConfig::new(Lab::INTERFACE, &[PORT], &[near]);
    let config = config.with(|it| it.engines = Engines::PerQueue);
    let _inside = lab.a().enter().unwrap();
    XdpBackend::open_each(&config, &paths).unwrap()
}

/// The host's side, in the second namespace, and what sends to it.
struct Scene {
    senders: Vec<XdpBackend>,
    engines: Vec<AnyBackend>,
    keeper: DeviceKeeper,
    /// The last frame's number.
    sent: u64,
    /// Dropped last.
    lab: Lab,
}

impl Scene {
    fn new(queues: u32) -> Self {
        Self::on(Lab::new(&with_queues(queues)).unwrap())
    }

    /// With two queues in use, of four. veth wants no more queues to send from than the other end
    /// has to receive on.
    fn with_two_of_four() -> Self {
        let lab = Lab::new(&with_queues(4)).unwrap();
        for (netns, kind) in [(lab.a(), "tx"), (lab.b(), "rx")] {
            netns.exec(&["ethtool", "-L", Lab::INTERFACE, kind, "2"]).unwrap();
        }
        Self::on(lab)
    }

    /// The other two, and frames on them.
    fn add_two(&mut self) {
        for (netns, kind) in [(self.lab.b(), "rx"), (self.lab.a(), "tx")] {
            netns.exec(&["ethtool", "-L", Lab::INTERFACE, kind, "4"]).unwrap();
        }
        self.senders.clear();
        self.senders = senders(&self.lab);
        assert_eq!(self.senders.len(), 4);
    }

    fn on(lab: Lab) -> Self {
        let [_, near] = addresses();
        let opened = {
            let _inside = lab.b().enter().unwrap();
            let device = AnyDevice::xdp(Lab::INTERFACE);
            device
                .open(&[near], &[PORT], Engines::Count(ENGINES), TrafficClasses::default())
                .unwrap()
        };
        let OpenDevice { backends: engines, keeper, .. } = opened;
        Self { senders: senders(&lab), engines, keeper, sent: 0, lab }
    }

    fn status(&self) -> InterfaceStatus {
        self.keeper.interface().unwrap()
    }

    /// Queues polled, of those that there are, and attachments.
    fn queues(&self) -> [u64; 3] {
        let InterfaceStatus { queues, queues_polled, attachments, .. } = self.status();
        [queues_polled.into(), queues.into(), attachments]
    }

    fn send(&mut self, queue: usize) {
        self.sent += 1;
        let (ends, number) = (addresses(), self.sent.to_be_bytes());
        let transmit = Transmit::new(ends, PORT, ClassOfService::Throughput, number.len());
        let mut once = Some(transmit);
        let sender = &mut self.senders[queue];
        sender.tx_burst(1, |frames| {
            TxFrame::fill_each(frames, &mut |buffer: &mut [u8]| {
                buffer[..number.len()].copy_from_slice(&number);
                once.take()
            })
        });
        sender.flush(Instant::ZERO);
    }

    /// A turn of an engine. The numbers of the frames that it received.
    fn turn(&mut self, engine: usize) -> Vec<u64> {
        let (backend, mut got) = (&mut self.engines[engine], Vec::new());
        backend.follow();
        backend.rx_burst(64, |packets| {
            let number = |it: &rma_core::backend::RxPacket<'_>| it.bytes.first_chunk().copied();
            got.extend(packets.iter().filter_map(number).map(u64::from_be_bytes));
        });
        got
    }

    /// Turns these engines, and sends on `queue` again and again, until one receives of it.
    fn lands(&mut self, queue: usize, turning: &[usize]) -> usize {
        let first = self.sent + 1;
        self.turn_until("a frame", turning, |scene, received| {
            scene.send(queue);
            received.iter().find(|(_, number)| *number >= first).map(|(engine, _)| *engine)
        })
    }

    /// Turns these engines until `ask`, which hears which of them received what, has an answer.
    fn turn_until<T>(
        &mut self,
        what: &str,
        turning: &[usize],
        mut ask: impl FnMut(&mut Self, &[(usize, u64)]) -> Option<T>,
    ) -> T {
        let began = monotonic();
        loop {
            let mut received = Vec::new();
            for &engine in turning {
                received.extend(self.turn(engine).into_iter().map(|number| (engine, number)));
            }
            if let Some(answer) = ask(self, &received) {
                return answer;
            }
            assert!(monotonic() - began < DEADLINE, "waited for {what}: {:?}", self.status());
            thread::yield_now();
        }
    }

    /// Turns these engines, while frames come on all queues, until so many queues are polled, and
    /// so often it was attached.
    fn turn_to(&mut self, wanted: [u64; 3], turning: &[usize]) {
        self.turn_until(&format!("{wanted:?}"), turning, |scene, _| {
            (0..scene.senders.len()).for_each(|queue| scene.send(queue));
            (scene.queues() == wanted).then_some(())
        });
    }

    /// Frames on each queue come to its engine.
    fn assert_all_land_right(&mut self) {
        for queue in 0..self.senders.len() {
            assert_eq!(self.lands(queue, &[0, 1]), queue % ENGINES as usize, "queue {queue}");
        }
    }

    /// Frames on these queues of an engine that stands still come to nobody.
    fn assert_none_lands(&mut self, queue: usize, turning: &[usize]) {
        // What came before has been taken: one frame on another queue is certain to come after it.
        let first = self.sent + 1;
        (0..20).for_each(|_| self.send(queue));
        let last = self.sent;
        let other = (queue + 1) % ENGINES as usize;
        let lands = self.turn_until("a frame of another queue", turning, |scene, received| {
            scene.send(other);
            let of_this = received.iter().find(|it| (first..=last).contains(&it.1));
            let of_other = received.iter().find(|it| it.1 > last);
            of_this.or(of_other).map(|it| it.1)
        });
        assert!(lands > last, "a frame on queue {queue} came to an engine");
    }

    /// Removes the interface, until that is noticed.
    fn remove(&mut self, turning: &[usize]) {
        self.senders.clear();
        self.lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
        self.turn_until("the interface to be gone", turning, |scene, _| {
            (scene.status().state == InterfaceState::Gone).then_some(())
        });
    }

    /// Makes it again, with so many queues.
    fn restore(&mut self, queues: u32) {
        self.lab.link(&with_queues(queues)).unwrap();
        self.senders = senders(&self.lab);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn queues_that_are_added_under_traffic_are_shared_by_all_engines_and_none_is_taken_away() {
    let mut scene = Scene::with_two_of_four();
    assert_eq!(scene.queues(), [2, 2, 1]);
    scene.assert_all_land_right();
    scene.add_two();
    scene.turn_to([4, 4, 2], &[0, 1]);
    scene.assert_all_land_right();
    let refused = scene.lab.b().exec(&["ethtool", "-L", Lab::INTERFACE, "rx", "2"]).unwrap_err();
    assert!(refused.to_string().contains("too low for existing"), "{refused}");
    scene.assert_all_land_right();
    assert_eq!(scene.queues(), [4, 4, 2]);
    let device = scene.status().device;
    assert!(device.contains("native (several engines on veth)"), "{device}");
    assert!(device.contains("4 queue(s), 2 engines, MTU"), "{device}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn of_an_engine_that_stands_still_while_queues_are_added_its_own_wait_and_no_others() {
    let mut scene = Scene::with_two_of_four();
    scene.add_two();
    // Engine 1 has two of the four, and none is polled.
    scene.turn_to([2, 4, 2], &[0]);
    for queue in [0, 2] {
        assert_eq!(scene.lands(queue, &[0]), 0, "queue {queue}");
    }
    let status = scene.status().to_string();
    assert!(status.contains("with 2 of its 4 receive queues polled"), "{status}");
    scene.assert_none_lands(1, &[0]);
    scene.turn_to([4, 4, 2], &[0, 1]);
    scene.assert_all_land_right();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_is_back_with_fewer_queues_than_engines_is_refused_with_the_command() {
    let mut scene = Scene::new(2);
    scene.remove(&[0, 1]);
    scene.restore(1);
    let trouble = scene.turn_until("the reason", &[0, 1], |scene, _| {
        let trouble = scene.status().trouble;
        trouble
            .filter(|it| it.contains("rma0 has 1 receive and 1 transmit queue(s), and each of 2"))
    });
    assert!(trouble.contains("`ethtool -L rma0 rx 2 tx 2`"), "{trouble}");
    scene.remove(&[0, 1]);
    scene.restore(2);
    scene.turn_to([2, 2, 2], &[0, 1]);
    scene.assert_all_land_right();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_is_removed_and_back_comes_to_each_engine_as_it_gives_up_the_old_one() {
    let mut scene = Scene::new(2);
    scene.assert_all_land_right();
    for (attachments, still) in [(2, 1), (3, 0)] {
        let turning = [1 - still];
        scene.remove(&turning);
        scene.restore(2);
        scene.turn_to([1, 2, attachments], &turning);
        assert_eq!(scene.lands(turning[0], &turning), turning[0]);
        scene.assert_none_lands(still, &turning);
        scene.turn_to([2, 2, attachments], &[0, 1]);
        scene.assert_all_land_right();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_engine_that_has_ended_leaves_its_queues_to_the_kernel_and_the_others_go_on() {
    let mut scene = Scene::new(2);
    scene.assert_all_land_right();
    drop(scene.engines.pop());
    scene.turn_to([1, 2, 1], &[0]);
    scene.assert_none_lands(1, &[0]);
    assert_eq!(scene.lands(0, &[0]), 0);
    // What is attached anew is for those that live.
    scene.remove(&[0]);
    scene.restore(2);
    scene.turn_to([1, 2, 2], &[0]);
    assert_eq!(scene.lands(0, &[0]), 0);
}
