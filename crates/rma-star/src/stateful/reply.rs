//! Writes what this host answers in the half of a connection in which the peer asks (RC): as Z
//! would, with this host's clock.

use rma_core::{
    backend::Transmit, limits::TAG_LEN, op::ClassOfService, packet::SMALL, port::SourcePort,
    time::Instant,
};

use super::{
    Stateful,
    connection::{Connection, Phase},
    responder::{Reply, Responder, What},
    write::Writing,
};
use crate::{
    counters::{StarDrop, StarEvent},
    limits::ANSWERED_MAX,
    mr_table::Access,
    names::Side,
    tables::{Tables, z_time},
    wire::{
        Answer, ChunkAnswer, EaOfZ, Gda, Header, KeyPhase,
        data::GDA_HEADER_LEN,
        work::{EA_ENTRY_LEN, WORK_HEADER_LEN},
    },
};

impl Stateful {
    /// Writes the next reply of a connection; one EA for all that it can answer together. `false`
    /// if there is none, or it has no room.
    pub(super) fn write_reply(
        &mut self,
        host: &Tables<'_>,
        at: u16,
        writing: &mut Writing<'_, '_>,
    ) -> bool {
        let connection = self.connections.at_mut(at);
        let Some(mut responder) = connection.rc.take() else { return false };
        let is_written = match self.replies.front(&responder.replies).copied() {
            None => false,
            Some(Reply { what: What::Ea(_), came_at }) => {
                self.write_eas(host, at, &mut responder, came_at, writing)
            }
            Some(reply) => {
                let _ = self.replies.pop(&mut responder.replies);
                self.write_data(host, at, &responder, &reply, writing)
            }
        };
        self.connections.at_mut(at).rc = Some(responder);
        is_written
    }

    fn write_eas(
        &mut self,
        host: &Tables<'_>,
        at: u16,
        responder: &mut Responder,
        came_at: Instant,
        writing: &mut Writing<'_, '_>,
    ) -> bool {
        let connection = self.connections.at(at);
        let most = writing.out.bytes.len().min(connection.frame_len_max);
        let payload = &mut writing.out.bytes[..most];
        let payload = payload.get_mut(WORK_HEADER_LEN..most - TAG_LEN).unwrap_or_default();
        let entries = payload.as_chunks_mut().0.iter_mut().take(ANSWERED_MAX.into());
        let mut count = 0;
        for entry in entries {
            let first = self.replies.front(&responder.replies);
            let Some(Reply { what: What::Ea(ea), .. }) = first else { break };
            ea.emit(entry);
            count += 1;
            let _ = self.replies.pop(&mut responder.replies);
        }
        let header = header_of(responder, writing);
        let delay_micros = delay_micros(came_at, writing.now);
        let mut octets = [0; WORK_HEADER_LEN];
        EaOfZ { header, count: count as u8, delay_micros }.emit(&mut octets);
        let time = z_time(writing.now);
        writing.sealer.push(&responder.key, header.iv(Side::Stateless), &octets, time);
        let len = WORK_HEADER_LEN + count * EA_ENTRY_LEN + TAG_LEN;
        transmit(host, connection, &octets, len, writing);
        true
    }

    /// A GDA. Its data is read now, if its memory region is still there.
    fn write_data(
        &self,
        host: &Tables<'_>,
        at: u16,
        responder: &Responder,
        reply: &Reply,
        writing: &mut Writing<'_, '_>,
    ) -> bool {
        let Reply { what: What::Data { guide, answered, answer }, came_at } = reply else {
            return false;
        };
        let connection = self.connections.at(at);
        let len = usize::from(guide.chunk_len);
        let payload = writing.out.bytes.get_mut(GDA_HEADER_LEN..).unwrap_or_default();
        if payload.len() < len + TAG_LEN {
            host.counters.drop_frame(StarDrop::NoRoom);
            return false;
        }
        let (pd, offset) = (connection.local_pd, guide.octets_of_mr().start);
        let span = host.mrs.span(pd, guide.mr, Access::REMOTE_READ, offset, len as u64);
        let is_open = connection.phase == Phase::Open;
        let mut answer = if is_open { *answer } else { Answer::Gone };
        if answer == Answer::Done {
            let payload = &mut payload[..len];
            if !span.is_ok_and(|span| span.memory.copy_out(span.offset, payload).is_ok()) {
                host.counters.count(StarEvent::Denied);
                answer = Answer::Denied;
            }
        }
        let chunk_len = if answer == Answer::Done { guide.chunk_len } else { 0 };
        let header = header_of(responder, writing);
        let delay_micros = delay_micros(*came_at, writing.now);
        let mut octets = [0; GDA_HEADER_LEN];
        let answer = ChunkAnswer::to(guide, header, answer, delay_micros);
        Gda { answer, chunk_len }.emit(&mut octets);
        let (iv, time) = (header.iv(Side::Stateless), z_time(writing.now));
        writing.sealer.push_answer(&responder.key, iv, &octets, time, answered);
        let len = GDA_HEADER_LEN + usize::from(chunk_len) + TAG_LEN;
        transmit(host, connection, &octets, len, writing);
        true
    }
}

/// The header of a reply, with a counter never used before.
fn header_of(responder: &Responder, writing: &mut Writing<'_, '_>) -> Header {
    writing.sealer.header(responder.name, KeyPhase::Even, z_time(writing.now))
}

fn delay_micros(came_at: Instant, now: Instant) -> u16 {
    (now.nanos_since(came_at) / 1_000).min(u16::MAX.into()) as u16
}

/// Puts the header before the payload, and says where the frame goes.
fn transmit<const LEN: usize>(
    host: &Tables<'_>,
    connection: &Connection,
    octets: &[u8; LEN],
    len: usize,
    writing: &mut Writing<'_, '_>,
) {
    writing.out.bytes[..LEN].copy_from_slice(octets);
    let class = if len <= SMALL { ClassOfService::Latency } else { ClassOfService::Throughput };
    let ends = [connection.own, connection.peer];
    writing.out.transmit = Some(Transmit {
        source_port: SourcePort::of_turn(writing.now),
        packet_len_max: connection.packet_len_max,
        tenant: host.tenant_of(connection.portal.into()),
        ..Transmit::new(ends, host.config.place().stateful_port, class, len)
    });
}
