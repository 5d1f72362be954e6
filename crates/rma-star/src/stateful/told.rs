//! Takes what Z tells and answers about the connection itself: its initial state, rules, its end
//! (§III-C1, §III-D1). What it says about changes of roles goes on to those.

use rma_core::{seal::Authentic, time::Instant};

use super::{Stateful, connection::Phase, receive::Seen, report, under_way::What};
use crate::{
    counters::StarDrop,
    names::{MrId, Side},
    portal::Report,
    tables::Tables,
    verbs::WcStatus,
    wire::{FRAME_LEN_MIN, Initial, Rule, State, StateKind, switch, told::CLOSE_LEN},
};

impl Stateful {
    /// The application waits for Z's initial state, which Z may have told before there was a
    /// connection here: Z is asked for it. Its clock is as the application was told.
    pub(crate) fn greet(&mut self, now: Instant, portal: u16, qp: u32) {
        let Some(at) = self.find(portal, qp) else { return };
        let connection = self.connections.at_mut(at);
        let waits = !connection.is_ready && connection.rc.is_none();
        if waits && connection.phase == Phase::Open {
            connection.clock.is_told(now);
            connection.greeting_is_due = true;
            self.relist(at);
        }
    }

    //= star#III-C1-state
    /// Z tells state.
    pub(super) fn take_state(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        seen: &Authentic<&Seen>,
        state: &State,
        payload: &[u8],
    ) {
        let at = seen.connection;
        if let (StateKind::Switch | StateKind::Abort, Ok(number)) =
            (state.kind, switch::name(payload))
        {
            return self.take_word(host, now, at, state.kind, number);
        }
        match (state.kind, Initial::parse(payload), Rule::parse(payload)) {
            (StateKind::Initial, Ok(initial), _) if (state.part, state.of) == (0, 1) => {
                let connection = self.connections.at_mut(at);
                let valid = u64::from(initial.valid_micros).min(host.config.valid_micros());
                connection.valid_micros = valid;
                let len_max = connection.packet_len_max.min(initial.packet_len_max);
                connection.packet_len_max = len_max;
                let frame_len_max = connection.frame_len_max.min(len_max.into());
                connection.frame_len_max = frame_len_max.max(FRAME_LEN_MIN);
                connection.state = (state.number, 1);
                connection.greeting_is_due = false;
                let (portal, qp) = (connection.portal, connection.qp);
                if !core::mem::replace(&mut connection.is_ready, true) {
                    report(host, portal, &Report::Ready { qp });
                }
                self.forget_greeting(at);
                self.acknowledge(host, at);
                self.relist(at);
            }
            (StateKind::Close, ..) if *payload == [0; CLOSE_LEN] => {
                self.connections.at_mut(at).is_closed_there = true;
            }
            (StateKind::Rules, _, Ok(rule)) => {
                self.take_rule(host, now, seen, state.number, rule);
            }
            _ => host.counters.drop_frame(StarDrop::Nonsense),
        }
    }

    /// Z has told its initial state: it need not be asked again.
    fn forget_greeting(&mut self, at: u16) {
        let is_greeting = |frame: &u16| matches!(self.frames.at(*frame).what, What::Greeting);
        let events = &self.connections.at(at).events;
        let frame = events.iter(&self.frame_links).find(is_greeting);
        if let Some(frame) = frame {
            let _ = self.forget_frame(frame);
        }
    }

    /// Z says what may be done with an MR or MW.
    fn take_rule(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        seen: &Authentic<&Seen>,
        number: u8,
        rule: Rule,
    ) {
        let at = seen.connection;
        let connection = self.connections.at(at);
        let asks = |frame: &u16| {
            matches!(self.frames.at(*frame).what,
                What::Ask { mr, number: asked } if mr == rule.mr && asked == number)
        };
        let frame = connection.events.iter(&self.frame_links).find(asks);
        let copy = frame.and_then(|frame| self.frames.at(frame).copy);
        let (Some(frame), Some(copy)) = (frame, copy) else {
            host.counters.drop_frame(StarDrop::LateOrUnsolicited);
            return;
        };
        let _ = self.forget_frame(frame);
        let connection = self.connections.at_mut(at);
        connection.clock.answered(seen.time, copy.sent_at, now);
        connection.ask_is_under_way = false;
        connection.wanted = None;
        if rule.write.is_none() && rule.read.is_none() {
            return self.refuse(host, now, at, rule.mr);
        }
        if let Some((other, mr)) = self.registry.has_to_give() {
            let rules = &mut self.connections.at_mut(other).rules;
            self.registry.drop_rule(rules, mr);
        }
        let rules = &mut self.connections.at_mut(at).rules;
        self.registry.add(at, rules, rule);
        self.advance(host, now, at);
    }

    /// Z has no such MR for this connection: the work request that needs it fails.
    fn refuse(&mut self, host: &mut Tables<'_>, now: Instant, at: u16, mr: MrId) {
        let sends = &self.connections.at(at).queues[Side::Stateful as usize].sends;
        let needs = sends.front().filter(|&row| self.works[row].there.mr == mr);
        if let Some(row) = needs {
            self.works[row].status = WcStatus::RemAccessErr;
            self.fail(host, now, at, WcStatus::RemAccessErr);
        }
    }
}
