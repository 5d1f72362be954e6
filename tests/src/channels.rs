//! The contract of channels over real hosts: each message comes whole, once and in order, whatever
//! its length, through rings that wrap and places that are used again, whether the receiver is slow
//! or quick. The network is quiet here; what goes wrong is simulated, by `rma-channel`'s own tests.
//!
//! How each kind is opened, streams, and what must hold after every look are those of that
//! simulation: `rma_contract`, with a [`World`] of real hosts. A new kind comes in there, with one
//! row, and is tried here as well.

use rma_channel::{Kind, SendError};
use rma_contract::{
    hosts::Driven as _,
    kinds::{Row, Settings, rows},
    run::Run,
    stream::{Habit, Lens},
};
use rma_sim::net::frame::NodeId;

pub use world::World;

mod world;

/// Returns the settings of a channel: two ends, or as many as it may have if `many`. All senders
/// are on one host, all receivers on the other; of a duplex channel, one of each are on both.
fn settings(row: &Row, len_max: u32, room: u64, many: bool) -> Settings {
    if row.is_duplex {
        return row.settings(len_max, room, many).0;
    }
    let (senders, receivers) = if many { (row.senders, row.receivers) } else { (1, 1) };
    let senders = (0..senders as u16).map(|it| NodeId(2 * it)).collect();
    let receivers = (0..receivers as u16).map(|it| NodeId(2 * it + 1)).collect();
    Settings { name: 7, senders, receivers, len_max, room }
}

/// The hosts of a channel that is over, and closed.
fn over(mut run: Run<World>) -> World {
    run.close();
    run.world.check_rows();
    run.world
}

/// Sends so many messages of these lengths through a new channel, all of which come.
fn all_come(
    mut world: World,
    row: &Row,
    (len_max, room): (u32, u64),
    (lens, count): (Lens, u64),
    habit: Habit,
) -> World {
    let may_be_many = row.senders + row.receivers > 2;
    for many in [false, true].into_iter().take(1 + usize::from(may_be_many)) {
        let settings = settings(row, len_max, room, many);
        let mut run = Run::new(row, world, &settings);
        run.open(row, &settings, lens, count);
        run.set_habit(habit);
        run.finish();
        run.check_all_came();
        world = over(run);
    }
    world
}

/// Messages of all lengths that a kind takes come whole, once and in order.
///
/// # Panics
/// If not.
pub fn messages_of_all_lengths_come_whole_once_and_in_order(mut world: World) {
    for row in rows() {
        let (shortest, longest) = (row.shortest, row.longest);
        for len in [1, 7, 8, 9, 64, 100, 4079, 4080, 4096, 4097, longest] {
            if (shortest..=longest).contains(&len) {
                let lens = (Lens::All(len), 8);
                world = all_come(world, row, (longest, 4), lens, Habit::Prompt);
                world = all_come(world, row, (len, 3), lens, Habit::Prompt);
            }
        }
        let mixed = (Lens::Mixed(shortest, longest), 200);
        world = all_come(world, row, (longest, 4), mixed, Habit::Prompt);
    }
}

/// Checks that an invalid message is refused, and that nothing is sent.
///
/// # Panics
/// If not.
pub fn an_invalid_message_is_refused(mut world: World) {
    for row in rows() {
        for len_max in [row.shortest, row.longest.min(100), row.longest] {
            let settings = settings(row, len_max, 2, false);
            let mut run = Run::new(row, world, &settings);
            for len in [0, len_max as usize + 1, 1 << 20] {
                let stream = &mut run.streams[0];
                let (link, now) = run.world.link(stream.node);
                let end = stream.end.as_mut().expect("nobody has dropped it");
                let refused = end.send(link, now, &vec![1; len]);
                assert_eq!(refused, Err(SendError::Len { len, max: len_max }), "{}", row.kind);
            }
            // Only messages that are sent afterwards come.
            run.streams[0].left = 4;
            run.finish();
            run.check_all_came();
            world = over(run);
        }
    }
}

/// Many laps of the smallest rings and of few places, with lengths that share few divisors with
/// them.
///
/// # Panics
/// If a message does not come whole, once and in order.
pub fn messages_wrap_at_every_offset(mut world: World) {
    for row in rows() {
        for len in (1..=100).filter(|len| (row.shortest..=row.longest).contains(len)).step_by(3) {
            let habit = if len % 2 == 0 { Habit::Prompt } else { Habit::Holding(1) };
            let len_max = row.longest.min(100);
            world = all_come(world, row, (len_max, 2), (Lens::All(len), 20), habit);
        }
        let len_max = row.longest.min(180);
        let mixed = (Lens::Mixed(row.shortest, len_max), 500);
        world = all_come(world, row, (len_max, 2), mixed, Habit::Holding(1));
    }
}

/// A receiver that is slow, or keeps messages, loses none.
///
/// # Panics
/// If it does.
pub fn a_receiver_that_is_slow_or_keeps_messages_loses_none(mut world: World) {
    for row in rows() {
        for habit in [Habit::Slow(2), Habit::Slow(25), Habit::Holding(1), Habit::Holding(3)] {
            let len_max = row.longest.min(500);
            let mixed = (Lens::Mixed(row.shortest, len_max), 60);
            world = all_come(world, row, (len_max, 5), mixed, habit);
        }
    }
}

/// A channel that is full says so, and goes on when its receiver looks, or gives messages back.
///
/// # Panics
/// If it takes more than there may be room for, or does not go on.
pub fn a_channel_that_is_full_says_so_and_goes_on(mut world: World) {
    /// How many turns pass while it is full.
    const TURNS: u64 = 500;
    for row in rows() {
        // A word that was taken holds nothing.
        let hoards = row.kind != Kind::SendRecvBufferless;
        let habits = [Habit::Idle, Habit::Hoarding].into_iter().take(1 + usize::from(hoards));
        for (habit, room) in habits.flat_map(|habit| [1, 4, 16].map(|room| (habit, room))) {
            let settings = settings(row, row.longest.min(100), room, false);
            let mut run = Run::new(row, world, &settings);
            run.open(row, &settings, Lens::All(row.longest.min(100)), 100);
            run.set_habit(habit);
            run.look();
            while run.streams[0].full == 0 || run.streams[0].sent.len() < room as usize {
                run.step();
            }
            (0..TURNS).for_each(|_| run.step());
            let taken = run.streams[0].sent.len();
            assert!(taken < 100, "{}: {taken} of {room}", row.kind);
            run.set_habit(Habit::Prompt);
            run.finish();
            run.check_all_came();
            assert_eq!(run.streams[0].sent.len(), 100, "{}", row.kind);
            world = over(run);
        }
    }
}
