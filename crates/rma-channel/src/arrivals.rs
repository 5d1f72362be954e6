//! Numbered messages as they arrive: ops have no order, so what comes is sorted by number, and
//! handed out and freed in turn.

use std::collections::VecDeque;

use crate::ring::{Held, Malformed, Position};

/// Numbered messages that have arrived, of which a sender has so many under way or unprocessed at
/// most.
///
/// Invariant: what has come and is not handed out has numbers from `next` on, fewer than `capacity`
/// from `tail` on; so it takes no more memory, whatever comes.
#[derive(Debug)]
pub(crate) struct Arrivals<T> {
    capacity: u64,
    /// From `next` on.
    come: VecDeque<Option<T>>,
    /// The number of the message that is handed out next.
    next: Position,
    /// Up to where messages have been given back.
    tail: Position,
    held: Held,
}

impl<T> Arrivals<T> {
    pub(crate) fn new(capacity: u64) -> Self {
        let (next, tail) = (Position::ZERO, Position::ZERO);
        Self { capacity, come: VecDeque::new(), next, tail, held: Held::default() }
    }

    /// Message `number` has come. An error if it cannot have.
    pub(crate) fn insert(&mut self, number: Position, message: T) -> Result<(), Malformed> {
        let (ahead, room) = (number.since(self.next), self.capacity - self.next.since(self.tail));
        let malformed =
            Malformed::Number { number: number.to_bits(), next: self.next.to_bits(), room };
        if ahead >= room {
            return Err(malformed);
        }
        let ahead = ahead as usize;
        if ahead >= self.come.len() {
            self.come.resize_with(ahead + 1, || None);
        }
        match &mut self.come[ahead] {
            Some(_) => Err(malformed),
            free => {
                *free = Some(message);
                Ok(())
            }
        }
    }

    /// The next message, if it has come.
    pub(crate) fn take(&mut self) -> Option<(Position, T)> {
        let message = self.come.front_mut()?.take()?;
        self.come.pop_front();
        let number = self.next;
        self.next = number.after(1);
        self.held.take(number, 1);
        Some((number, message))
    }

    /// A message that was handed out is processed.
    pub(crate) fn give_back(&mut self, number: Position) {
        self.tail = self.tail.after(self.held.give_back(number));
    }

    /// Up to where messages are processed.
    pub(crate) const fn tail(&self) -> Position {
        self.tail
    }

    /// The number of the message that is handed out next.
    pub(crate) const fn next(&self) -> Position {
        self.next
    }

    /// Whether all that could be handed out is processed.
    pub(crate) fn is_all(&self) -> bool {
        self.tail == self.next && !matches!(self.come.front(), Some(Some(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(number: u64) -> Position {
        Position::from_bits(number)
    }

    #[test]
    fn messages_that_come_in_any_order_are_handed_out_in_turn() {
        let mut arrivals = Arrivals::new(4);
        for number in [2, 0, 3, 1] {
            arrivals.insert(at(number), number).unwrap();
        }
        let taken: Vec<_> = core::iter::from_fn(|| arrivals.take()).collect();
        assert_eq!(taken, [(at(0), 0), (at(1), 1), (at(2), 2), (at(3), 3)]);
        arrivals.give_back(at(1));
        assert_eq!(arrivals.tail(), at(0), "0 is not");
        arrivals.give_back(at(0));
        assert_eq!((arrivals.tail(), arrivals.is_all()), (at(2), false));
    }

    #[test]
    fn a_number_comes_once_and_only_where_there_is_room() {
        let mut arrivals = Arrivals::new(4);
        arrivals.insert(at(0), ()).unwrap();
        arrivals.insert(at(2), ()).unwrap();
        assert!(arrivals.take().is_some());
        for (wrong, room) in [(0, 3), (2, 3), (4, 3), (u64::MAX, 3), (1 << 63, 3)] {
            let error = arrivals.insert(at(wrong), ()).unwrap_err();
            assert_eq!(error, Malformed::Number { number: wrong, next: 1, room });
        }
        arrivals.give_back(at(0));
        arrivals.insert(at(4), ()).unwrap();
    }
}
