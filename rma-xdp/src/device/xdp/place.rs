//! The follower's side of one engine: whether it has its share of an attachment, and of which.

use std::sync::Arc;

use super::{counters::Counters, exchange::Exchange, share::Share};

/// An engine, for the thread that follows the interface.
#[derive(Debug)]
pub(super) struct Place {
    exchange: Arc<Exchange>,
    pub(super) counters: Arc<Counters>,
    state: State,
}

/// Attachments are told apart by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has no share.
    Empty,
    /// It has not taken its share yet.
    Offered(u64),
    Has(u64),
    /// It has not given its share back yet.
    Asked,
    /// It has ended, and its sockets are closed.
    Ended,
}

impl Place {
    /// Of an engine that has a share of an attachment.
    pub(super) fn having(exchange: Arc<Exchange>, counters: Arc<Counters>, number: u64) -> Self {
        Self { exchange, counters, state: State::Has(number) }
    }

    /// The calling thread is the one to be woken when there is something to [`Place::look`] at.
    pub(super) fn followed_by_this_thread(&self) {
        self.exchange.followed_by_this_thread();
    }

    /// Looks at what the engine has taken and given back, where `present` is the attachment that
    /// there is now: what it has of another it is asked for. Never waits.
    pub(super) fn look(&mut self, present: Option<u64>) {
        if self.exchange.returned().is_some() {
            self.state = match self.state {
                State::Offered(number) => State::Has(number),
                State::Asked => State::Empty,
                other => other,
            };
        }
        let is_over = |number| Some(number) != present;
        match self.state {
            _ if Arc::strong_count(&self.exchange) == 1 => {
                // It will take nothing more.
                self.exchange.retract();
                self.state = State::Ended;
            }
            State::Has(number) if is_over(number) => {
                self.exchange.offer(None);
                self.state = State::Asked;
            }
            // Else it has just taken it, and is asked for it at the next look.
            State::Offered(number) if is_over(number) && self.exchange.retract().is_some() => {
                self.state = State::Empty;
            }
            _ => {}
        }
    }

    /// Whether it has no share, and could have one.
    pub(super) fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    /// Whether it has a share that it is asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.state == State::Asked
    }

    /// Whether it will never have one again.
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether it has its share of this attachment.
    pub(super) fn has(&self, number: u64) -> bool {
        self.state == State::Has(number)
    }

    /// Offers a share of this attachment to an engine that has none.
    pub(super) fn offer(&mut self, share: Box<Share>, number: u64) {
        self.exchange.offer(Some(share));
        self.state = State::Offered(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that has a share of attachment 1, and its side of the exchange.
    fn place() -> (Place, Arc<Exchange>) {
        let exchange = Arc::new(Exchange::new().unwrap());
        (Place::having(exchange.clone(), Arc::default(), 1), exchange)
    }

    /// Offers nothing, as if it were a share: what is in it is of no interest here.
    fn offer(place: &mut Place, number: u64) {
        place.exchange.offer(None);
        place.state = State::Offered(number);
    }

    #[test]
    fn an_engine_is_asked_once_for_its_share_and_gives_it_back_when_it_comes_to_it() {
        let (mut place, exchange) = place();
        place.look(Some(1));
        assert!(place.has(1) && !exchange.is_waiting(), "it keeps what is attached");
        for _ in 0..3 {
            place.look(None);
            assert!(place.is_asked() && !place.is_empty() && exchange.is_waiting());
        }
        // Another is attached, and it stands still.
        place.look(Some(2));
        assert!(place.is_asked() && !place.has(2));
        exchange.swap(&mut None);
        place.look(Some(2));
        assert!(place.is_empty());
        offer(&mut place, 2);
        place.look(Some(2));
        assert!(!place.has(2), "it has not taken it");
        exchange.swap(&mut None);
        place.look(Some(2));
        assert!(place.has(2));
    }

    #[test]
    fn a_share_of_what_is_gone_is_taken_back_before_or_after_the_engine_takes_it() {
        let (mut place, exchange) = place();
        offer(&mut place, 2);
        place.look(None);
        assert!(place.is_empty() && !exchange.is_waiting());
        offer(&mut place, 3);
        exchange.swap(&mut None);
        place.look(None);
        assert!(place.is_asked() && exchange.is_waiting());
    }

    #[test]
    fn an_engine_that_has_ended_is_left_out_whatever_it_was_asked_for() {
        for asked in [false, true] {
            let (mut place, exchange) = place();
            if asked {
                place.look(None);
            }
            drop(exchange);
            place.look(Some(2));
            assert!(place.has_ended() && !place.is_empty() && !place.is_asked());
            assert!(!place.exchange.is_waiting(), "nothing lies there for ever");
        }
    }
}
