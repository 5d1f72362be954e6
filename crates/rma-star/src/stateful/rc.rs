//! Connections both of whose sides are stateful (RC): how they begin, and how this host asks.
//!
//! There are no WQEPs: the peer keeps its own work requests. A message goes to the RECV at its
//! place in the peer's queue, a WRITE or READ to the peer's memory region, and all under the key of
//! this host's half ([`responder`](super::responder)). What this host cannot know is whether the
//! peer has posted that RECV. If it has not, it says so, and tells when it has; the message is sent
//! again then, or after the time for a frame that is not answered, and fails after `rnr_timeout`.

use rma_core::{op::OpStatus, time::Instant};

use super::{
    Stateful, connection::Beginning, report_opened, responder::Responder, under_way::What,
};
use crate::{
    keys::{Binding, FrameKey, KeyMessage},
    names::{ConnectionName, Side, Taken},
    tables::Tables,
    verbs::WcStatus,
};

impl Stateful {
    //= star#III-C1-auto
    /// A connection begins both of whose sides are stateful. If this host `connects`, its
    /// protection domain gives K_c.
    pub(crate) fn open_rc(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        portal: u16,
        qp: u32,
        connects: bool,
    ) {
        let beginning = self.beginning(host, now, portal, qp, None);
        let opened = beginning.and_then(|beginning| {
            let paths = beginning.paths;
            let added = self.add_rc(host, beginning, connects);
            added.inspect_err(|_status| self.paths.release(paths))
        });
        let (status, key) = match opened {
            Ok(key) => (WcStatus::Success, if connects { *key.expose() } else { [0; 16] }),
            Err(status) => (status, [0; 16]),
        };
        report_opened(host, portal, now, qp, status, key);
    }

    fn add_rc(
        &mut self,
        host: &Tables<'_>,
        beginning: Beginning,
        connects: bool,
    ) -> Result<FrameKey, WcStatus> {
        let Beginning { name, own, peer, portal, now, .. } = beginning;
        let theirs = ConnectionName { qpn_z: name.qpn_f, qpn_f: name.qpn_z, ..name };
        let their_half = Binding { connection: theirs, f: peer, z: own };
        let key = if connects {
            let pd = host.pd_of_portal(name.pd, portal.into());
            let pd = pd.filter(|_| name.pd == beginning.local_pd).ok_or(WcStatus::LocProtErr)?;
            pd.key.derive(host.aead, &KeyMessage::of_connection(&their_half))
        } else {
            beginning.key
        };
        let own_half = Binding { connection: name, f: own, z: peer };
        let beginning = Beginning { key: key.of_half(host.aead, &own_half), ..beginning };
        let at = self.add(&beginning).ok_or(WcStatus::GeneralErr)?;
        let connection = self.connections.at_mut(at);
        let their_key = key.of_half(host.aead, &their_half);
        connection.rc = Some(Responder::new(theirs, their_key));
        // The peer's library has told its clock: it shows that at least.
        connection.clock.is_told(now);
        // The side that connects is there before the other, and hears of it by this.
        connection.probe_is_due = !connects;
        self.relist(at);
        Ok(key)
    }

    /// Whether both sides of a connection are stateful.
    pub(super) fn is_rc(&self, at: u16) -> bool {
        self.connections.at(at).rc.is_some()
    }

    /// The next message of this host goes to that RECV of the peer. `None` if not both sides are
    /// stateful.
    pub(super) fn next_recv(&mut self, at: u16) -> Option<u32> {
        let responder = self.connections.at_mut(at).rc.as_mut()?;
        let place = responder.next_recv;
        responder.next_recv = place.wrapping_add(1);
        Some(place)
    }

    /// The number of the next RD. `None` if not both sides are stateful.
    pub(super) fn next_number(&mut self, at: u16) -> Option<u32> {
        let responder = self.connections.at_mut(at).rc.as_mut()?;
        let number = responder.next_number;
        responder.next_number = number.wrapping_add(1);
        Some(number)
    }

    /// The peer has no RECV yet for what a frame has: it is sent again later, and is not under way
    /// meanwhile. Of a stateless side: it is too busy.
    pub(super) fn not_ready(&mut self, now: Instant, frame: u16) {
        let at = self.frames.at(frame).connection;
        if self.is_rc(at) {
            self.frames.refused(frame);
            self.free_charge(frame);
            self.set_blocked(at, Side::Stateful, Some(now));
        } else {
            self.note_outcome(now, frame, OpStatus::Nack);
        }
    }

    /// A message of this host has got on: none waits for a RECV, as far as is known.
    pub(super) fn got_on(&mut self, at: u16) {
        if self.is_rc(at) {
            self.set_blocked(at, Side::Stateful, None);
        }
    }

    /// The peer has posted the RECVs below a place.
    pub(super) fn recvs_are_there(&mut self, at: u16, told: Taken) {
        while let Some(frame) =
            self.first_refused(at, |place| told.recv.0.wrapping_sub(place).cast_signed() > 0)
        {
            self.frames.send_once_more(frame, &mut self.connections.at_mut(at).again);
        }
    }

    /// A frame that the peer had no RECV for, at one of these places.
    fn first_refused(&self, at: u16, is_place: impl Fn(u32) -> bool) -> Option<u16> {
        let connection = self.connections.at(at);
        let chunks = connection.chunks.iter(&self.frame_links);
        let mut frames = chunks.chain(connection.events.iter(&self.frame_links));
        frames.find(|&frame| {
            let place = self.message_of(frame).and_then(|row| self.works[row].recv);
            self.frames.at(frame).is_refused && place.is_some_and(&is_place)
        })
    }

    /// The message that a frame is about which the peer, that is stateful as well, could not take.
    pub(super) fn unfit(&self, frame: u16) -> Option<u16> {
        self.message_of(frame).filter(|&row| self.works[row].recv.is_some())
    }

    /// The work request that a frame is about.
    fn message_of(&self, frame: u16) -> Option<u16> {
        match &self.frames.at(frame).what {
            What::Chunk { work, .. } => Some(*work),
            What::Cqes { told, .. } => told.front(),
            What::Greeting | What::Ask { .. } | What::Probe => None,
            What::Switch | What::Transfer | What::Commit => None,
        }
    }

    /// The message of this host that has waited for a RECV of the peer for too long.
    pub(super) fn unwanted(&self, at: u16) -> Option<u16> {
        self.message_of(self.first_refused(at, |_| true)?)
    }
}
