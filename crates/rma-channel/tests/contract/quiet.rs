//! The contract on a network without faults, where each frame takes exactly one hop.

use core::time::Duration;

use rma_channel::{Kind, SendError, SendState};
use rma_sim::{hosts::options::NetworkOptions, net::frame::NodeId};

use rma_contract::{
    hosts::Driven as _,
    kinds::{Row, Settings, rows},
    run::Run,
    simulated::World,
    stream::{Habit, Lens},
};

/// One channel of a kind, with as many ends as it may have if `many`.
fn channel(row: &Row, len_max: u32, room: u64, many: bool) -> (Run<World>, Settings) {
    let (settings, nodes) = row.settings(len_max, room, many);
    (Run::new(row, World::new(NetworkOptions::exact(nodes)), &settings), settings)
}

/// Sends so many messages of these lengths through a new channel, all of which come. Then the same
/// through one with as many ends as it may have, if it may have more than two.
fn all_come(row: &Row, len_max: u32, room: u64, lens: Lens, count: u64, habit: Habit) {
    come(row, len_max, room, false, lens, count, habit);
    if row.senders + row.receivers > 2 {
        come(row, len_max, room, true, lens, count, habit);
    }
}

fn come(row: &Row, len_max: u32, room: u64, many: bool, lens: Lens, count: u64, habit: Habit) {
    let (mut run, settings) = channel(row, len_max, room, many);
    run.open(row, &settings, lens, count);
    run.set_habit(habit);
    run.finish();
    run.check_all_came();
}

/// Kinds, and those with receivers that read into memory of the application's besides.
fn all_rows() -> impl Iterator<Item = Row> {
    let reading = rows().filter(|row| !row.prefetches).filter_map(Row::reading);
    rows().copied().chain(reading)
}

/// Lengths that a kind takes: the ends, and those around words and lines.
fn lens(row: &Row) -> impl Iterator<Item = u32> + use<> {
    let (shortest, longest) = (row.shortest, row.longest);
    let lens = [1, 2, 7, 8, 9, 63, 64, 65, 100, 1000, 4000, 4079, 4080, 4095, 4096, 4097, 10_000];
    let lens = lens.into_iter().filter(move |len| (shortest..=longest).contains(len));
    lens.chain([longest])
}

#[test]
fn messages_of_all_lengths_come_whole_once_and_in_order() {
    for row in &all_rows().collect::<Vec<_>>() {
        for len in lens(row) {
            all_come(row, row.longest, 4, Lens::All(len), 12, Habit::Prompt);
            all_come(row, len, 3, Lens::All(len), 12, Habit::Prompt);
        }
        let mixed = Lens::Mixed(row.shortest, row.longest);
        all_come(row, row.longest, 4, mixed, 200, Habit::Prompt);
    }
}

#[test]
fn an_invalid_message_is_refused_and_nothing_is_sent() {
    for row in &all_rows().collect::<Vec<_>>() {
        for len_max in [row.shortest, row.longest.min(100), row.longest] {
            let (mut run, _) = channel(row, len_max, 2, false);
            let before = *run.world.network.counts(NodeId(0));
            for len in [0, len_max as usize + 1, 1 << 20] {
                let stream = &mut run.streams[0];
                let end = stream.end.as_mut().unwrap();
                let (link, now) = run.world.link(stream.node);
                let refused = end.send(link, now, &vec![1; len]);
                assert_eq!(refused, Err(SendError::Len { len, max: len_max }), "{}", row.kind);
            }
            run.look();
            let since = run.world.network.counts(NodeId(0)).since(&before);
            // A reader may look for messages; a sender has nothing to say.
            assert_eq!(since.total().issued, 0, "{}", row.kind);
        }
    }
}

#[test]
fn messages_wrap_at_every_offset() {
    for row in rows() {
        // Lengths that share few divisors with any ring, and many laps of the smallest one.
        for len in (1..=100).filter(|&len| len >= row.shortest && len <= row.longest) {
            let len_max = row.longest.min(100);
            let habit = if len % 2 == 0 { Habit::Prompt } else { Habit::Holding(1) };
            // How many ends there are changes no offset: a third of the lengths will do for more.
            if len % 3 == 0 {
                all_come(row, len_max, 2, Lens::All(len), 60, habit);
            } else {
                come(row, len_max, 2, false, Lens::All(len), 60, habit);
            }
        }
    }
    for row in &all_rows().collect::<Vec<_>>() {
        let mixed = Lens::Mixed(row.shortest, row.longest.min(180));
        all_come(row, row.longest.min(180), 2, mixed, 1000, Habit::Holding(1));
    }
}

#[test]
fn a_receiver_that_is_slow_or_keeps_messages_loses_none() {
    for row in &all_rows().collect::<Vec<_>>() {
        for habit in [Habit::Slow(2), Habit::Slow(25), Habit::Holding(1), Habit::Holding(3)] {
            let mixed = Lens::Mixed(row.shortest, row.longest.min(500));
            all_come(row, row.longest.min(500), 5, mixed, 120, habit);
        }
    }
}

/// Sends until there is no room, while `habit` frees nothing. Later all is received.
fn fills_up(row: &Row, habit: Habit) {
    for room in [1, 4, 16] {
        let (mut run, settings) = channel(row, row.longest.min(100), room, false);
        run.open(row, &settings, Lens::All(row.longest.min(100)), 100);
        run.set_habit(habit);
        run.pass(Duration::from_millis(2));
        let taken = run.streams[0].sent.len();
        let (full, least) = (run.streams[0].full, room as usize);
        assert!(full > 0 && (least..100).contains(&taken), "{}: {taken} of {room}", row.kind);
        run.pass(Duration::from_millis(2));
        assert_eq!(run.streams[0].sent.len(), taken, "{}: nothing makes room", row.kind);
        run.set_habit(Habit::Prompt);
        run.finish();
        run.check_all_came();
        assert_eq!(run.streams[0].sent.len(), 100, "{}", row.kind);
    }
}

#[test]
fn a_channel_that_is_full_says_so_and_goes_on_when_the_receiver_looks() {
    for row in &all_rows().collect::<Vec<_>>() {
        fills_up(row, Habit::Idle);
    }
}

#[test]
fn a_receiver_that_gives_nothing_back_holds_up_its_sender_and_nothing_else() {
    // A word that was taken holds nothing.
    for row in &all_rows().filter(|row| row.kind != Kind::SendRecvBufferless).collect::<Vec<_>>() {
        fills_up(row, Habit::Hoarding);
    }
}

#[test]
fn either_end_may_be_dropped_at_any_point_and_another_channel_of_the_same_links_goes_on() {
    for row in &all_rows().collect::<Vec<_>>() {
        for (hops, of_sender) in (0..14).map(|hops| (hops, hops % 2 == 0)) {
            let (mut run, settings) = channel(row, row.longest.min(300), 3, false);
            run.open(row, &settings, Lens::Mixed(row.shortest, row.longest.min(300)), 20);
            run.pass(Duration::from_micros(hops));
            if of_sender {
                run.streams[0].end = None;
            } else {
                run.readers[0].held.clear();
                run.readers[0].end = None;
            }
            run.pass(Duration::from_millis(1));
            run.check_end();
            let settings = Settings { name: settings.name + 1, ..settings };
            run.open(row, &settings, Lens::Mixed(row.shortest, row.longest.min(300)), 20);
            run.finish();
            run.check_all_came();
        }
    }
}

#[test]
fn a_sender_to_a_crashed_host_is_told_and_both_may_set_up_anew() {
    for row in &all_rows().collect::<Vec<_>>() {
        for (hops, node) in (0..14).map(|hops| (hops, NodeId(hops as u16 % 2))) {
            let (mut run, settings) = channel(row, row.longest.min(300), 3, false);
            let lens = Lens::Mixed(row.shortest, row.longest.min(300));
            run.open(row, &settings, lens, 20);
            run.pass(Duration::from_micros(hops));
            run.crash(node);
            run.pass(Duration::from_secs(4));
            run.check_end();
            let is_told = run.streams.iter().all(|stream| {
                let waits = stream.sent.iter().any(|sent| sent.state == SendState::Sending);
                stream.end.is_none() || stream.broken.is_some() || !waits
            });
            let is_passive = run.world.network.counts(NodeId(0)).total().issued == 0;
            // With receivers that read, one that is gone costs nobody else anything.
            assert!(is_told || is_passive || row.into.is_some(), "{}: {:?}", row.kind, run.streams);
            run.world.restart(node);
            let settings = Settings { name: settings.name + 1, ..settings };
            run.open(row, &settings, lens, 20);
            run.finish();
            run.check_all_came();
        }
    }
}

#[test]
fn terms_of_a_host_that_has_restarted_since_are_of_no_use_and_break_the_channel() {
    for row in &all_rows().collect::<Vec<_>>() {
        let (mut run, settings) = channel(row, row.longest.min(300), 3, false);
        run.open(row, &settings, Lens::All(row.shortest), 3);
        run.crash(NodeId(1));
        run.readers.clear();
        run.world.restart(NodeId(1));
        run.pass(Duration::from_secs(4));
        let stream = &run.streams[0];
        let is_passive = run.world.network.counts(NodeId(0)).total().issued == 0;
        let is_read = row.into.is_some();
        assert!(is_passive || is_read || stream.broken.is_some(), "{}: {stream:?}", row.kind);
    }
}

#[test]
fn buffers_lent_to_a_stopped_sender_are_taken_back_and_the_others_go_on() {
    for row in rows().filter(|row| row.lends) {
        let mut told = 0;
        for hops in 0..40 {
            let lens = Lens::Mixed(8, 300);
            let (mut run, settings) = channel(row, 300, 6, true);
            run.open(row, &settings, lens, 30);
            run.set_habit([Habit::Prompt, Habit::Slow(3), Habit::Holding(2)][hops as usize % 3]);
            run.pass(Duration::from_micros(hops));
            let (index, asleep) = (hops as usize % row.senders, Duration::from_millis(hops % 4));
            let is_asleep = hops % 3 > 0;
            let after = Duration::from_micros(100 * (hops % 5));
            run.take_back(index, is_asleep.then_some(asleep), after);
            // A sender that wakes up with something to send is told that it is out.
            run.finish();
            run.check_all_came_but(Some(index));
            told += u64::from(run.streams[index].broken.is_some());
            // Nothing is lent to whoever is out.
            assert!(run.streams.iter().enumerate().all(|(it, stream)| {
                it == index || stream.broken.is_none() && stream.sent.len() == 30
            }));
        }
        assert!(told > 4, "{}: {told} have woken up with what was lent no more", row.kind);
    }
}
