//! Hop 1 at the initiator: an op enters service, and its request is written (1RMA §3.1, §5.1).

use super::{Initiator, queues::fifo, slots::State};
use crate::{
    backend::{Transmit, TxFrame},
    command::{CommandOp, Transfer},
    crypto::EngineId,
    granules::Granules,
    limits::TAG_LEN,
    nic::{solicitation_window::Solicitor, tables::Tables},
    op::ClassOfService,
    time::Instant,
    wire::{
        Header, Mutation, MutationRequest, RecordedRequest, Request, SettleRequest,
        mutation::MUTATION_REQUEST_LEN,
        read::{REQUEST_LEN, RESPONSE_OVERHEAD},
        recorded::{RECORDED_REQUEST_HEADER_LEN, RECORDED_REQUEST_LEN},
        settle::SETTLE_REQUEST_LEN,
    },
};

impl Initiator {
    /// Lets the next op enter service, if there is one that may, and writes its request.
    pub(super) fn poll_request(
        &mut self,
        now: Instant,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        let admits_read = tables.window.admits(Solicitor::Read);
        let id = self.next_ready(admits_read)?;
        let number = self.number_of(id);
        let slot = &mut self.slots[id.index()];
        let command = &slot.command;
        let pid = slot.pid.expect("a slot with a command has a PID");
        let addresses = &tables.config.place.addresses;
        let source = addresses.toward(command.responder).expect("checked on arrival");
        if slot.state == State::Held {
            self.held.serve(&mut self.links, slot, id);
            slot.charged = command.op.op_size() as u16;
            self.shares.take(slot.tenant, slot.charged.into());
        } else {
            self.waiting[fifo(command.class, command.op.moves())].remove(&mut self.links, id.0);
        }
        self.in_service.push_back(&mut self.links, id.0);
        self.bulk_under_way += usize::from(command.class == ClassOfService::Throughput);

        let header = Header {
            class: command.class,
            pid,
            region: command.remote_region,
            slot: number,
            generation: slot.generation,
            engine: EngineId::default(),
            counter: 0,
        };
        let timeout_micros = || (self.timeout_nanos / 1_000) as u32;
        let payload_len_max = tables.payload_len_max(source, command.responder, RESPONSE_OVERHEAD);
        let (key, security) = (&command.key, &mut *tables.security);
        let plain = |mutation| {
            let timeout_micros = timeout_micros();
            MutationRequest { header, mutation, timeout_micros }
        };
        let (iv, len) = match command.op {
            CommandOp::Read(Transfer { remote_offset, op_size, .. }) => {
                tables.window.debit(Solicitor::Read, op_size);
                slot.solicited.payload_len_max = payload_len_max;
                let request = Request {
                    header,
                    region_offset: remote_offset,
                    op_size: op_size as u16,
                    payload_len_max,
                };
                (security.write_request(key, request, out.bytes), REQUEST_LEN)
            }
            CommandOp::Write(Transfer { remote_offset, op_size, .. }) => {
                let (region_offset, op_size) = (remote_offset, op_size as u16);
                let request = plain(Mutation::Write { region_offset, op_size });
                (security.write_request(key, request, out.bytes), MUTATION_REQUEST_LEN)
            }
            CommandOp::Rekey(_) => {
                let request = plain(Mutation::Rekey);
                (security.write_request(key, request, out.bytes), MUTATION_REQUEST_LEN)
            }
            CommandOp::Recorded { op, done } => {
                let (mutation, timeout_micros) = (Mutation::of(&op), timeout_micros());
                let request = RecordedRequest { header, mutation, timeout_micros, done };
                let immediate =
                    &mut out.bytes[RECORDED_REQUEST_HEADER_LEN..RECORDED_REQUEST_LEN - TAG_LEN];
                immediate.copy_from_slice(&op.immediate().to_be_bytes());
                (security.write_request(key, request, out.bytes), RECORDED_REQUEST_LEN)
            }
            CommandOp::Settle { op_type, name } => {
                let request = SettleRequest { header, op_type, name };
                (security.write_request(key, request, out.bytes), SETTLE_REQUEST_LEN)
            }
        };
        slot.seal.iv = iv;
        self.data_first = true;
        slot.entered_at = now;
        slot.arrived = Granules::NONE;
        slot.longest = 0;
        slot.state = State::InService;
        slot.source_port = self.ports.of_turn(slot.command.responder, now);
        let ends = [source, slot.command.responder];
        let transmit = Transmit::new(ends, tables.config.place.port, header.class, len);
        out.hold(Transmit { source_port: slot.source_port, tenant: slot.tenant, ..transmit });
        Some(())
    }
}
