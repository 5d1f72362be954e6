//! The order of a transfer's chunks (§III-C3): the connections of a path take turns in its window,
//! see `paths`, and of one connection the work requests of both sides do.

use rma_core::{
    cc::RemoteWindowId,
    limits::{GRANULE, TAG_LEN},
    time::Instant,
};

use super::{
    SIDES, Stateful,
    connection::Connection,
    transfer::chunk_len,
    under_way::What,
    work::Way,
    write::{Writing, can_seal},
};
use crate::{
    config::Framing, names::Side, tables::Tables, verbs::WqeOp, wire::data::GUIDE_HEADER_LEN,
};

impl Stateful {
    /// Writes the next chunk of those that paths have room for.
    pub(super) fn write_chunk(
        &mut self,
        host: &mut Tables<'_>,
        writing: &mut Writing<'_, '_>,
    ) -> bool {
        let mut passed = 0;
        while let Some((path, at)) = self.paths.next(writing.now) {
            if !self.frames.has_room() || !can_seal(host, writing) {
                return false;
            }
            if !self.may_begin(at) {
                // It has as much under way as it may have: the next one's turn.
                let Self { paths, shares, connections, .. } = self;
                if !paths.pass(path, |at| shares.may_send(&connections.at(at).of_z)) {
                    passed += 1;
                    if passed > self.paths.ready_len() {
                        return false;
                    }
                }
                continue;
            }
            let Some(expiry) = self.expiry(at, writing.now) else { return false };
            let Some(frame) = self.next_chunk(host, path, at, writing) else { continue };
            let is_written = self.write_frame(host, frame, expiry, writing);
            if self.connections.get(at).is_some() {
                self.relist(at);
            }
            if is_written {
                return true;
            }
        }
        false
    }

    /// Begins the next chunk of a connection, whose turn it is on a path that is ready. `None` if
    /// it has none, or the window does not take it.
    fn next_chunk(
        &mut self,
        host: &Tables<'_>,
        path: RemoteWindowId,
        at: u16,
        writing: &Writing<'_, '_>,
    ) -> Option<u16> {
        let connection = self.connections.at(at);
        let way = if connection.paths[Way::Push as usize] == path { Way::Push } else { Way::Pull };
        let frame_len_max = connection.frame_len_max.min(writing.out.bytes.len());
        let first = connection.turn;
        let next = [first, SIDES[1 - first as usize]].into_iter().find_map(|side| {
            let (_, row, left) = self.moving(connection, side).filter(|it| it.0 == way)?;
            let len = chunk_len(way, left, frame_len_max);
            (len > 0).then_some((side, row, left, len))
        });
        let Some((side, row, left, len)) = next else {
            self.connections.at_mut(at).is_on_path[way as usize] = false;
            self.paths.end_turn(path, way, false);
            return None;
        };
        if !self.paths.admits(path, len) {
            self.paths.wait();
            return None;
        }
        let completes = left == len && self.may_complete(host, row);
        let completes = completes.then(|| self.place_of_recv(row));
        let charge = self.paths.send(path, len, writing.now);
        let transfer = self.works[row].transfer.as_mut()?;
        let offset = transfer.begun;
        transfer.begun += len;
        transfer.unanswered += 1;
        let is_last = !transfer.has_left();
        let what = What::Chunk { work: row, offset, len: len as u16, completes };
        let frame = self.frames.add(at, what, charge)?;
        let connection = self.connections.at_mut(at);
        self.shares.sends(&mut connection.of_z);
        connection.chunks.push_back(&mut self.frame_links, frame);
        connection.turn = SIDES[1 - side as usize];
        if is_last {
            let queues = &mut connection.queues[side as usize];
            queues.moving.remove(&mut self.work_links, row);
            queues.answering.push_back(&mut self.work_links, row);
        }
        let has_more = self.has_chunk(at, way);
        self.connections.at_mut(at).is_on_path[way as usize] = has_more;
        let payload_len = if way == Way::Push { len as usize } else { 0 };
        let frame_len = GUIDE_HEADER_LEN + payload_len + TAG_LEN;
        if !(has_more && self.paths.goes_on(path, frame_len)) {
            self.paths.end_turn(path, way, has_more);
        }
        Some(frame)
    }

    /// Whether the last chunk of a message may complete its RECV (ours): all others are answered.
    /// Those before it in its queue are SENDs, or are answered as well.
    fn may_complete(&self, host: &Tables<'_>, row: u16) -> bool {
        let work = &self.works[row];
        let is_fused = host.config.settings().framing == Framing::Fused;
        (is_fused || work.recv.is_some())
            && work.owner == Side::Stateful
            && work.op == WqeOp::Send
            && work.immediate.is_none()
            && work.transfer.is_some_and(|transfer| transfer.unanswered == 0)
    }

    /// The way of the next chunk of one side's work requests, and how many octets of their first
    /// are left.
    fn moving(&self, connection: &Connection, side: Side) -> Option<(Way, u16, u32)> {
        let row = connection.queues[side as usize].moving.front()?;
        let transfer = self.works[row].transfer.as_ref()?;
        Some((transfer.way, row, transfer.len - transfer.begun))
    }

    /// Whether a connection has a chunk to send that way.
    pub(super) fn has_chunk(&self, at: u16, way: Way) -> bool {
        let connection = self.connections.at(at);
        let moves = |side| self.moving(connection, side).is_some_and(|moving| moving.0 == way);
        SIDES.into_iter().any(moves)
    }

    /// About how many chunks a connection has for a path.
    pub(super) fn chunks_of(&self, connection: &Connection, path: RemoteWindowId) -> usize {
        let chunks_of = |side| {
            let (way, _, left) = self.moving(connection, side)?;
            let len = chunk_len(way, left, connection.frame_len_max).max(GRANULE);
            let others = connection.queues[side as usize].moving.len() - 1;
            let is_of_path = connection.paths[way as usize] == path;
            is_of_path.then_some(others + left.div_ceil(len) as usize)
        };
        SIDES.into_iter().filter_map(chunks_of).sum()
    }

    /// Whether an RD wants an RDA of its own. If others follow, or went before it at the same time,
    /// one EA may answer them all (ours).
    pub(super) fn wants_answer(&mut self, host: &Tables<'_>, frame: u16, now: Instant) -> bool {
        let sent = self.frames.at(frame);
        // A stateful peer answers several frames together.
        if self.connections.at(sent.connection).rc.is_some() {
            return false;
        }
        if host.config.settings().framing == Framing::Faithful || sent.tries > 0 {
            return true;
        }
        let (at, is_rd) = match sent.what {
            What::Chunk { work, .. } => (sent.connection, self.is_pushed(work)),
            _ => return true,
        };
        if is_rd && self.has_more_to_push(at) {
            self.connections.at_mut(at).shared_at = Some(now);
        }
        self.connections.at(at).shared_at != Some(now)
    }

    /// Whether RDs of a connection follow at once.
    fn has_more_to_push(&self, at: u16) -> bool {
        let path = self.connections.at(at).paths[Way::Push as usize];
        self.has_chunk(at, Way::Push) && self.paths.admits(path, 1)
    }
}
