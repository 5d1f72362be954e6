//! Inputs of the target `nic`: what happens between two NICs, one short story for each thing that
//! can.

use std::collections::BTreeMap;

use crate::story::{SHAPE, Story};

/// All stories by name.
pub(crate) fn all() -> BTreeMap<String, Vec<u8>> {
    let stories = reads().into_iter().chain(writes()).chain(mutations_gone_wrong());
    let stories = stories
        .chain(refusals())
        .chain(full_tables())
        .chain(wires())
        .chain(changes())
        .chain(recorded());
    stories.map(|(name, story)| (name.to_owned(), story.told())).collect()
}

type Named = (&'static str, Story);

/// A read whose data takes so many frames, from command to completion.
fn whole(story: Story, (flags, slot, size, offset): (u8, u8, u16, u16), answers: usize) -> Story {
    story.read(flags, slot, size, offset).serve(1).answer(answers).complete()
}

fn reads() -> Vec<Named> {
    let (v6, smallest_mtu) = ([0b0101, 20, 40, 64, 168], [0b0100, 20, 40, 64, 0]);
    let in_turn = whole(whole(Story::new(), (0, 0, 100, 0), 1), (0, 1, 4096, 77), 3);
    vec![
        ("read-small", whole(Story::new(), (0, 0, 100, 5), 1)),
        ("read-whole", whole(Story::new(), (4, 1, 4096, 64), 3)),
        ("read-v6", whole(Story::of(v6), (0, 0, 4096, 1), 3)),
        ("read-smallest-mtu", whole(Story::of(smallest_mtu), (0, 0, 640, 1), 10)),
        ("read-from-self", whole(Story::new(), (1, 0, 64, 0), 0).serve(1)),
        ("reads-in-turn", in_turn),
    ]
}

fn writes() -> Vec<Named> {
    let two_mutations = [0b1_0100, 20, 40, 64, 168];
    vec![
        ("write-small", Story::new().write(0, 0, 100).four_hops(1)),
        ("write-whole", Story::new().write(4, 1, 4096).four_hops(3)),
        ("write-to-self", Story::new().write(1, 0, 9).serve(4).complete()),
        ("write-wrong-key", Story::new().write(2, 0, 100).four_hops(0)),
        ("write-no-permission", Story::new().write(8, 0, 100).four_hops(0)),
        ("rekey", Story::new().rekey(0, 0, 7).four_hops(1).write(0, 1, 65).four_hops(1)),
        (
            "write-duplicated",
            Story::of(two_mutations)
                .write(0, 0, 100)
                .serve(1)
                .deliver(0)
                .answer(2)
                .serve(1)
                .deliver(0)
                .answer(1)
                .complete(),
        ),
    ]
}

fn mutations_gone_wrong() -> Vec<Named> {
    let solicited = |size| Story::new().write(0, 0, size).serve(1).answer(1);
    vec![
        (
            "write-rekeyed-under-way",
            solicited(4096).serve(1).b_renews(5).serve(1).answer(1).complete(),
        ),
        (
            "write-applied-late",
            solicited(100).sends().deliver_stopped([255, 255], 0).answer(1).complete(),
        ),
        (
            "write-too-late",
            solicited(100).sends().pass([255, 255], 1).deliver(0).pass([255, 255], 2).complete(),
        ),
    ]
}

fn recorded() -> Vec<Named> {
    let op = |kind, size| Story::new().b_posts().recorded(kind, 0, 0, size);
    let reached = || op(5, 1).serve(1).answer(1).sends();
    let late = |story: Story| story.pass([255, 255], 2).complete();
    let garbage = Story::new().b_posts_garbage(&[3, 3, 7, 8, 0]);
    vec![
        ("ordered-write", op(0, 4096).four_hops(3)),
        ("send", op(1, 1000).four_hops(1).b_takes_events()),
        ("send-too-long", op(1, 1025).four_hops(0)),
        ("send-not-ready", Story::new().recorded(1, 0, 0, 9).four_hops(0)),
        ("write-with-imm", op(2, 1000).four_hops(1).b_takes_events()),
        ("write-with-imm-ordered", Story::new().b_posts().recorded(2, 16, 0, 900).four_hops(1)),
        ("notify", op(3, 1).four_hops(1).recorded(3, 0x40, 1, 1).four_hops(1)),
        ("compare-swap", op(4, 1).four_hops(1)),
        ("compare-swap-misaligned", Story::new().recorded(4, 0x20, 0, 1).complete()),
        ("fetch-add", op(5, 1).four_hops(1).recorded(5, 0x40, 0, 1).four_hops(1)),
        ("recorded-wrong-key", Story::new().recorded(5, 2, 0, 1).four_hops(0)),
        ("settle-cancels", reached().settle(5, 1).serve(1).answer(1).complete().deliver(1)),
        ("settle-applied", late(reached().deliver(0)).settle(5, 1).serve(1).answer(1).complete()),
        ("settle-other-type", late(reached()).settle(1, 1).serve(1).answer(1).complete()),
        ("recorded-rekeyed", reached().b_rekeys(7, 0).deliver(0).answer(1).complete()),
        ("queue-rekeyed", op(1, 9).serve(1).answer(1).b_rekeys(7, 1).serve(1).answer(1)),
        ("posts-garbage", garbage.recorded(3, 0, 0, 1).four_hops(1).recorded(1, 0, 1, 9)),
        ("lines-whole", Story::new().lines(0, 0, 0, [0, 0, 0]).serve(1)),
        ("lines-changed", Story::new().lines(0, 1, 0, [1, 0, 1]).lines(1, 0, 0, [9, 0, 1])),
        ("lines-first-alone", Story::new().lines(0, 2, 7, [0, 0, 1]).complete()),
    ]
}

fn refusals() -> Vec<Named> {
    let unreadable = core::array::from_fn(|at| if at < 4 { 0 } else { 0xff });
    vec![
        ("wrong-key", whole(Story::new(), (2, 0, 100, 0), 1)),
        ("no-permission", whole(Story::new(), (8, 0, 100, 0), 1)),
        ("out-of-bounds", whole(Story::new(), (0, 0, 100, 12_300), 1)),
        ("foreign-local-region", whole(Story::new(), (16, 0, 100, 0), 0)),
        ("op-size-0", whole(Story::new(), (0, 0, 0, 0), 0)),
        ("slot-twice", Story::new().read(0, 0, 9, 0).read(0, 0, 9, 0).read(0, 8, 9, 0)),
        ("line-of-zeros", Story::new().line([0; 64]).complete()),
        ("line-unreadable", Story::new().line(unreadable).complete()),
        ("no-notices", whole(Story::of([0b1000_0100, 20, 40, 64, 168]), (2, 0, 100, 0), 1)),
    ]
}

fn full_tables() -> Vec<Named> {
    let window = [0b0110, 20, 40, 0, 168];
    let two_reads = |shape| Story::of(shape).read(0, 0, 9, 0).read(0, 1, 9, 0).serve(2);
    vec![
        ("nack", two_reads(SHAPE).answer(2).complete().complete()),
        ("window-full", two_reads(window).pass([255, 255], 1)),
    ]
}

/// Frames that are lost, held, copied, altered or made up on their way.
fn wires() -> Vec<Named> {
    let reordered = Story::new().read(0, 0, 4096, 9).serve(1).b_sends().b_sends().b_sends();
    let reordered = [2, 2, 0, 1, 1].into_iter().fold(reordered, Story::deliver).complete();
    let asked = || Story::new().read(0, 0, 9, 0).serve(1);
    let changed = Story::new()
        .read(0, 0, 100, 0)
        .sends()
        .changed(&[0, 0, 0, 30, 1])
        .deliver(0)
        .b_sends()
        .changed(&[0, 1, 0, 33, 128, 0, 3, 4])
        .deliver(0)
        .complete();
    let astray = Story::new().read(0, 0, 100, 0).sends();
    vec![
        ("reordered-and-duplicated", reordered),
        ("request-replayed", asked().deliver(0).answer(2)),
        ("late", asked().pass([255, 255], 2).answer(1)),
        ("changed", changed),
        ("invented", Story::new().invented(1, 56).invented_at_b(3, 48)),
        ("packet", packet(4, &[0, 0, 0, 0])),
        ("packet-of-40", packet(39, &[0, 0, 0, 0])),
        ("packet-changed", packet(4, &[1, 0, 60, 1])),
        ("packet-cut", packet(4, &[3, 0, 100, 0])),
        ("astray", (0..5).fold(astray, |story, how| story.astray(0, how))),
    ]
}

/// Three reads whose requests come in one packet, and whose answers do, as `how` says.
fn packet(more: u8, how: &[u8]) -> Story {
    let asked = (0..3).fold(Story::new(), |story, slot| story.read(0, slot, 100, 9).sends());
    let answered = asked.packet(2, &[0; 4]).b_sends().b_sends().b_sends().packet(more, how);
    (0..3).fold(answered, |story, _| story.complete())
}

/// Regions and paths that change under ops.
fn changes() -> Vec<Named> {
    let gone = Story::new().read(0, 0, 100, 0).serve(1).b_renews(0).answer(1);
    let gone = gone.read(0, 1, 100, 0).serve(1).renew(1).answer(1);
    vec![
        ("region-gone", gone),
        ("mtu-changes", whole(Story::new().mtu(8).mtu(0), (0, 0, 128, 0), 2)),
    ]
}
