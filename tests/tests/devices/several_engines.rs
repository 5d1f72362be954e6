//! Several engines' backends on one interface: which of them has which queue, and what is refused.
//! In native mode veth delivers on the queue that a frame was sent on.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use rma_core::backend::Backend;
use rma_lab::{Lab, LabConfig};
use rma_xdp::device::{
    Engines,
    xdp::{AttachMode, Feature, ModeReason, XdpBackend, XdpError},
};

use super::xdp_backend::{End, config, paths, send, wait_for};

/// A lab whose ends have so many queues; the second one receives on `receive` of them, and sends
/// on `transmit`.
fn lab(queues: u32, receive: u32, transmit: u32) -> Lab {
    let lab = Lab::new(&LabConfig { queues, ..LabConfig::default() }).unwrap();
    let [queues, receive, transmit] = [queues, receive, transmit].map(|it| it.to_string());
    // veth wants no more queues to send from than the other end has to receive on.
    let set = ["ethtool", "-L", Lab::INTERFACE, "rx"];
    lab.a().exec(&[&set[..], &[&queues, "tx", &receive]].concat()).unwrap();
    lab.b().exec(&[&set[..], &[&receive, "tx", &transmit]].concat()).unwrap();
    lab
}

fn try_open(lab: &Lab, end: End, engines: Engines) -> Result<Vec<XdpBackend>, XdpError> {
    let config = config(end).with(|it| it.engines = engines);
    let paths = paths(lab, end, 1500);
    let _inside = end.netns(lab).enter().unwrap();
    XdpBackend::open_each(&config, &paths)
}

fn open(lab: &Lab, end: End, engines: Engines) -> Vec<XdpBackend> {
    try_open(lab, end, engines).unwrap()
}

/// Sends a frame on each queue of the first end, and checks which of `engines` receives it.
fn assert_land(senders: &mut [XdpBackend], engines: &mut [XdpBackend]) {
    for (queue, sender) in senders.iter_mut().enumerate() {
        send(sender, End::A, 4, &[queue as u8; 64]);
        let lands = wait_for("a frame", || {
            let mut receives = engines.iter_mut().map(|it| it.rx_burst(64, |_| ()) > 0);
            receives.position(|it| it)
        });
        assert_eq!(lands, queue % engines.len(), "of {} engines, queue {queue}", engines.len());
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_frame_on_a_queue_comes_to_the_engine_that_has_it_and_its_own_go_back_on_that_queue() {
    for (queues, engines) in [(2, 2), (4, 2), (4, 3), (4, 4)] {
        let lab = lab(queues, queues, queues);
        let mut senders = open(&lab, End::A, Engines::PerQueue);
        assert_eq!(senders.len(), queues as usize);
        let mut all = open(&lab, End::B, Engines::Count(engines));
        let description = all[0].describe().unwrap().clone();
        let (mode, reason) = (description.mode, description.mode_reason);
        assert_eq!((mode, reason), (AttachMode::Native, ModeReason::SeveralEngines));
        assert_eq!((description.queues, description.engines), (queues, engines));
        assert_land(&mut senders, &mut all);
        for (engine, backend) in all.iter_mut().enumerate() {
            let own = (engine..queues as usize).step_by(engines as usize).count();
            assert_eq!(backend.counters().rx_packets.load(), own as u64, "its own and no other's");
            assert_eq!(backend.poll_fds().count(), own + 1);
            send(backend, End::B, 4, b"back");
            assert_eq!(backend.counters().tx_packets.load(), 1);
            wait_for("the frame", || (senders[engine].rx_burst(1, |_| ()) == 1).then_some(()));
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_engine_needs_a_queue_of_each_kind_and_who_has_more_may_have_several() {
    let lab = lab(4, 4, 2);
    let error = try_open(&lab, End::B, Engines::Count(3)).unwrap_err();
    let XdpError::TooFewQueues { receive: 4, transmit: 2, engines: 3, .. } = error else {
        panic!("{error}")
    };
    let told = "interface rma0 has 4 receive and 2 transmit queue(s), and each of 3 engines";
    assert!(error.to_string().contains(told), "{error}");
    assert!(error.to_string().contains("`ethtool -L rma0 rx 3 tx 3`"), "{error}");
    for engines in [0, 33] {
        let error = try_open(&lab, End::B, Engines::Count(engines)).unwrap_err();
        assert!(matches!(error, XdpError::Config { field: "engines", .. }), "{error}");
    }
    // Nothing is left behind.
    let open = || try_open(&lab, End::B, Engines::PerQueue).ok();
    let mut all = wait_for("the interface to be free", open);
    assert_eq!(all.len(), 2, "one for each that transmits");
    assert_land(&mut self::open(&lab, End::A, Engines::PerQueue), &mut all);
}

/// veth refuses native mode to who receives on fewer queues than the other end sends on.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn several_engines_work_in_generic_mode_where_native_mode_is_refused() {
    let lab = lab(4, 4, 4);
    lab.b().exec(&["ethtool", "-L", Lab::INTERFACE, "rx", "2"]).unwrap();
    let mut senders = open(&lab, End::A, Engines::PerQueue);
    let mut all = open(&lab, End::B, Engines::Count(2));
    let description = all[0].describe().unwrap();
    let (mode, reason) = (description.mode, description.mode_reason);
    assert_eq!((mode, reason), (AttachMode::Generic, ModeReason::NativeRefused));
    let fallback = &description.fallbacks[0];
    assert_eq!((fallback.wanted, fallback.got), (Feature::NativeMode, Feature::GenericMode));
    for sender in &mut senders {
        send(sender, End::A, 4, b"to one of them");
        wait_for("the frame", || {
            all.iter_mut().any(|it| it.rx_burst(1, |_| ()) == 1).then_some(())
        });
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_interface_is_kept_until_the_last_backend_goes_and_each_closes_its_own_sockets() {
    let lab = lab(2, 2, 2);
    let mut senders = open(&lab, End::A, Engines::PerQueue);
    let mut all = open(&lab, End::B, Engines::PerQueue);
    assert_land(&mut senders, &mut all);
    drop(all.pop());
    assert_land(&mut senders[..1], &mut all);
    let error = try_open(&lab, End::B, Engines::One).unwrap_err();
    assert!(matches!(error, XdpError::PortInUse { .. }), "{error}");
    drop(all);
    wait_for("the interface to be free", || try_open(&lab, End::B, Engines::One).ok());
}
