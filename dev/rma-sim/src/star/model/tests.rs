//! The model on loads so small that a pencil gives their times, and what must hold of any.

use super::{
    cache::{CacheOptions, Replacement, StateCache},
    claims::{knee, linearity, over, penalty_for},
    figures::{CX3_ENTRIES, Curve, GROUP, OCTET, Setting},
    frames::{Frame, Wire},
    groups::{GroupOptions, Groups},
    load::Workload,
    network::{LinkOptions, Network, Side},
    run::{Load, Mark, System, play},
    stateless::{Fusion, StarOptions},
    time::Picos,
};

const MICRO: Picos = Picos::nanos(1_000);

/// One connection over the paper's frames at 10 Gbit/s, 1 us each way and at each host.
const ONE: Load = Load {
    workload: Workload::Rpc,
    connections: 1,
    wire: Wire::PAPER,
    octet: OCTET,
    delay: MICRO,
    host: MICRO,
};

/// One call: how long it takes in picoseconds, and what there is when nothing is left to come.
fn one_call(system: &System) -> (u64, Mark) {
    let mut took = None;
    let end = play(system, &ONE, 1, |mark| {
        took = Some(mark.took.0);
        true
    });
    (took.unwrap(), end)
}

fn star(fusion: Fusion, turn: u64) -> System {
    System::Star(StarOptions { fusion, turn: Picos::nanos(turn) })
}

fn rc(curve: Curve) -> System {
    curve.system(&Setting::default())
}

/// Frames that went to the client and to the server, and packets both ways.
fn sent(mark: &Mark) -> (u64, u64, u64) {
    let [client, server] = mark.traffic;
    (client.sent, server.sent, client.packets + server.packets)
}

#[test]
fn frames_are_as_long_as_their_formats_say() {
    let paper = |frames: &[Frame]| Wire::PAPER.octets(frames);
    assert_eq!(paper(&[Frame::Data]), 14 + 20 + 8 + 20 + 32 + 4 + 4 + 20);
    assert_eq!(paper(&[Frame::Ack]), 90);
    assert_eq!(paper(&[Frame::Rd, Frame::Rd, Frame::Rd]), 70 + 3 * 52);
    let wqep = Frame::Wqep { receives: 3, sends: 1, inline: true };
    assert_eq!(paper(&[wqep]), 90 + 4 * 64 + 32);
    assert_eq!(Wire { entry: 32, ..Wire::PAPER }.octets(&[wqep]), 90 + 4 * 32 + 32);
    let ours = |frame: Frame| Wire::OURS.octets(&[frame]) - 66;
    assert_eq!(ours(wqep), 56 + 4 * 64 + 32);
    assert_eq!(ours(Frame::Rd), 88 + 32);
    assert_eq!(ours(Frame::Ea { frames: 3, rds: 3 }), 56 + 3 * 16);
    assert_eq!(ours(Frame::Cqep { receives: 0, sends: 1, is_ea: true }), 64 + 24);
    assert_eq!(ours(Frame::EaOfClient), 64);
    assert_eq!(ours(Frame::Gda), 68 + 32);
    let [told, alone] = [true, false].map(|is_ea| Frame::Cqep { receives: 0, sends: 1, is_ea });
    assert_eq!((paper(&[told]), paper(&[alone])), (90 + 24 + 8, 90 + 24));
}

#[test]
fn a_call_of_rc_takes_what_its_frames_take() {
    // Three frames of 122 octets, 97.6 ns each, one way; the host; one such frame back.
    let (took, end) = one_call(&rc(Curve::Unlimited));
    assert_eq!(took, 1_000_000 + 3 * 97_600 + 1_000_000 + 97_600 + 1_000_000);
    assert_eq!(sent(&end), (4, 4, 8));
    // The first frame finds no state: those behind it wait, and find it.
    let (took, end) = one_call(&rc(Curve::RdmaOnFpga));
    assert_eq!(took, 1_000_000 + 97_600 + 1_000_000 + 1_000_000 + 97_600 + 1_000_000);
    assert_eq!((sent(&end), end.misses), ((4, 4, 8), 1));
}

#[test]
fn a_call_of_star_by_the_papers_sequence_takes_24_frames_and_two_round_trips_more() {
    let (took, end) = one_call(&star(Fusion::FAITHFUL, 0));
    // RDs of 122 octets, RDAs of 90, CQEPs of 114, the third of each; then four WQEPs of 154, the
    // EA of the fourth and the GD, of 90 each, and the GDA.
    let received = (1_000_000 + 3 * 97_600) + (72_000 + 1_000_000) + (1_000_000 + 91_200);
    let fetched = (4 * 123_200 + 1_000_000) + (1_000_000 + 2 * 72_000) + (97_600 + 1_000_000);
    assert_eq!(took, received + 1_000_000 + fetched);
    assert_eq!(sent(&end), (12, 12, 24));
}

#[test]
fn a_call_of_star_by_default_takes_six_frames_in_four_packets() {
    let (took, end) = one_call(&star(Fusion::DEFAULT, 0));
    // Three RDs in a packet of 226 octets; WQEP of 378.
    assert_eq!(took, 1_000_000 + 180_800 + 1_000_000 + 302_400 + 1_000_000);
    // WQEP, and the EA of the RDs; RDs and CQEP.
    assert_eq!(sent(&end), (2, 3 + 1, 4));
    // The same, an EA of the CQEP, and one beside it.
    let (same, end) = one_call(&star(Fusion::THREE_ANSWERS, 0));
    assert_eq!((same, sent(&end)), (took, (2 + 1, 4 + 1, 5)));
}

#[test]
fn one_answer_to_a_wqep_is_what_the_link_from_the_server_lacked() {
    let setting = Setting::default();
    let [one, three] = [Curve::STAR, Curve::Star(Fusion::THREE_ANSWERS)];
    let rpc = |curve| over(&setting, Workload::Rpc, 400, (curve, Curve::Unlimited));
    let scala = |curve| {
        let at = |connections| over(&setting, Workload::Ml, connections, (curve, Curve::ScalaRdma));
        at(260).min(at(400))
    };
    let ratios = [rpc(one), scala(one), rpc(three), scala(three)];
    println!("over RC without limit, over ScalaRDMA; three answers: {ratios:.3?}");
    assert!(ratios[0] >= 0.9 && ratios[1] >= 1.05, "{ratios:.3?}");
    assert!(ratios[2] < 0.9 && ratios[3] < 1.05, "{ratios:.3?}");
}

#[test]
fn one_ea_covers_what_a_turn_has_found() {
    let frames = |turn| sent(&one_call(&star(Fusion::FRAMES, turn)).1).0;
    // The WQEP; an EA of each RD if each has a turn of its own.
    assert_eq!(frames(0), 1 + 3);
    assert_eq!(frames(10_000), 1 + 1);
}

#[test]
fn every_frame_that_is_sent_arrives_and_each_call_has_its_frames() {
    let systems = [
        (rc(Curve::Unlimited), Some(8)),
        (rc(Curve::RdmaOnFpga), Some(8)),
        (star(Fusion::FAITHFUL, 1_000), Some(24)),
        (star(Fusion::FRAMES, 1_000), None),
        (star(Fusion::DEFAULT, 1_000), None),
    ];
    for (system, frames) in systems {
        for workload in [Workload::Rpc, Workload::Ml] {
            let load = Load { workload, connections: 150, ..ONE };
            let end = play(&system, &load, 4, |_| true);
            assert_eq!(end.done, 600, "{system:?} {workload:?}");
            for traffic in end.traffic {
                assert_eq!(traffic.sent, traffic.arrived, "{system:?} {workload:?}");
            }
            let all = end.traffic[0].sent + end.traffic[1].sent;
            assert!(frames.is_none_or(|it| all == it * 600), "{all} {system:?} {workload:?}");
        }
    }
}

#[test]
fn the_state_that_was_used_longest_ago_makes_room() {
    let options = |replacement| CacheOptions { entries: 3, penalty: MICRO, replacement };
    let mut cache = StateCache::new(options(Replacement::LeastRecentlyUsed), 5);
    let mut uses =
        |all: &[u32]| all.iter().map(|&it| cache.use_state(it).0 > 0).collect::<Vec<_>>();
    assert_eq!(uses(&[0, 1, 2, 0, 1, 2]), [true, true, true, false, false, false]);
    assert_eq!(uses(&[0, 3]), [false, true], "takes the place of 1");
    assert_eq!(uses(&[0, 2, 3, 1]), [false, false, false, true]);
    assert_eq!([0, 1, 2, 3, 4].map(|it| cache.holds(it)), [false, true, true, true, false]);
    assert_eq!(cache.misses(), 5);
    // Going round four connections finds none of them; chance leaves some.
    let missed = |replacement| {
        let mut cache = StateCache::new(options(replacement), 4);
        (0..400).for_each(|it| _ = cache.use_state(it % 4));
        assert!((0..4).filter(|&it| cache.holds(it)).count() == 3);
        cache.misses()
    };
    assert_eq!(missed(Replacement::LeastRecentlyUsed), 400);
    assert!((100..300).contains(&missed(Replacement::Random(1))));
}

#[test]
fn one_group_of_connections_is_as_none() {
    for workload in [Workload::Rpc, Workload::Ml] {
        let run = |curve: Curve| curve.run(&Setting::default(), workload, CX3_ENTRIES);
        assert_eq!(run(Curve::ScalaRdma), run(Curve::Unlimited));
    }
    let more = |curve: Curve| curve.run(&Setting::default(), Workload::Ml, GROUP.0 + 1);
    assert!(more(Curve::ScalaRdma).calls_per_s < more(Curve::Unlimited).calls_per_s);
}

#[test]
fn a_group_begins_nothing_outside_its_slot_and_the_next_waits_for_what_is_under_way() {
    let link = LinkOptions { octet: OCTET, delay: MICRO, wire: Wire::PAPER };
    let mut network = Network::new(link);
    let options = GroupOptions { size: 1, slot: MICRO * 20, switch: MICRO * 2 };
    let mut groups = Groups::new(options, 2, &mut network);
    assert!(groups.may_begin(Side::Client, 0) && !groups.may_begin(Side::Client, 1));
    groups.begun();
    network.next_event().unwrap();
    assert_eq!(network.now(), MICRO * 20);
    assert!(groups.handle_slot(&mut network).is_empty());
    assert!(!groups.may_begin(Side::Server, 0), "the slot has ended");
    assert_eq!(network.next_event(), None, "an op is under way");
    groups.acknowledged(&mut network);
    network.next_event().unwrap();
    assert_eq!(network.now(), MICRO * 22);
    assert_eq!(groups.handle_slot(&mut network), [(Side::Client, 1)]);
    assert!(groups.may_begin(Side::Client, 1) && !groups.may_begin(Side::Client, 0));
}

#[test]
fn a_run_is_a_function_of_its_arguments() {
    let run = |seed| {
        let replacement = Replacement::Random(seed);
        let setting = Setting { replacement, ..Setting::default() };
        Curve::RdmaOnFpga.run(&setting, Workload::Rpc, 160)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn knees_penalties_and_lines_are_found_where_they_are() {
    let rate = |at: u32| if at <= 131 { 10.0 * f64::from(at.min(80)) } else { 500.0 };
    let found = knee(120, rate);
    assert_eq!((found.connections, found.peak), (131, 800.0));
    assert_eq!(knee(120, |_| 1.0).connections, 240, "beyond what is looked at");
    let ratio = |penalty: Picos| 1.0 + penalty.as_micros();
    let found = penalty_for(3.0, (Picos::ZERO, MICRO * 10), ratio).unwrap();
    assert!((found.as_micros() - 2.0).abs() < 0.02, "{found:?}");
    assert_eq!(penalty_for(30.0, (Picos::ZERO, MICRO * 10), ratio), None);
    assert!((linearity(&[1.0, 2.0, 4.0], &[3.0, 5.0, 9.0]) - 1.0).abs() < 1e-12);
    assert!(linearity(&[1.0, 2.0, 3.0], &[1.0, 9.0, 1.0]) < 0.1);
}
