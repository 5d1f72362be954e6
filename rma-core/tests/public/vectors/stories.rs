//! The ops whose frames are the golden vectors. New ones go last: what comes before them keeps its
//! octets.

use rma_core::{
    command::Command,
    crypto::{DerivedRegionKey, RegionKey},
    op::{ClassOfService, OpStatus, OpType},
};
use serde_json::Value;

use crate::vectors::{Key, NOW, Vectors, contents, next_region_key, region_key};

const WRONG_KEY: [u8; 16] = [0xee; 16];

impl Vectors {
    pub(crate) fn build(mut self) -> (Vec<Value>, Vec<Value>) {
        // The first use of the slot, so that the frames below are of generation 2 and later.
        self.initiator.handle_command(NOW, self.read(0, 0)).expect("the slot is free");
        self.completes_with(OpStatus::InvalidCommand);
        let read = self.key("READ", region_key(), OpType::Read);
        let write = self.key("WRITE", region_key(), OpType::Write);
        let rekey = self.key("Rekey", region_key(), OpType::Rekey);
        self.reads(&read);
        self.writes(&write);
        self.refused_mutations(&write, &rekey);
        self.rekeys(&rekey);
        self.recorded(&write);
        (self.keys, self.frames)
    }

    fn reads(&mut self, own: &Key) {
        let request = self.request("read request", own, self.read(1000, 100));
        self.serve(&request);
        self.answer("read response, first part", own, &request, &contents(1000..1064));
        self.answer("read response, last part", own, &request, &contents(1064..1100));
        self.completes_with(OpStatus::Ok);

        let one = Command { class: ClassOfService::Throughput, ..self.read(4095, 1) };
        let request = self.request("read request of one byte", own, one);
        self.serve(&request);
        self.answer("read response of one byte", own, &request, &contents(4095..4096));
        self.completes_with(OpStatus::Ok);

        let request = self.request("read request under a wrong key", &wrong(), self.read(0, 64));
        self.serve(&request);
        self.answer("REMOTE_AUTHENTICATION_FAILURE", &reserved(), &request, &[]);
        self.completes_with(OpStatus::RemoteAuthenticationFailure);

        let beyond = self.read(u64::MAX - 3, 4);
        let request = self.request("read request out of bounds", own, beyond);
        self.serve(&request);
        self.answer("REMOTE_OUT_OF_BOUNDS", own, &request, &[]);
        self.completes_with(OpStatus::RemoteOutOfBounds);

        let forbidden = Command { remote_region: self.forbidden, ..self.read(0, 4096) };
        let request = self.request("read request without permission", own, forbidden);
        self.serve(&request);
        self.answer("REMOTE_PERMISSION_DENIED", own, &request, &[]);
        self.completes_with(OpStatus::RemotePermissionDenied);

        let request = self.request("read request of a busy responder", own, self.read(0, 64));
        // The same request twice: the inbound queue has one entry.
        self.serve(&request);
        self.serve(&request);
        self.lose_answer();
        self.answer("NACK", own, &request, &[]);
        self.completes_with(OpStatus::Nack);
    }

    fn writes(&mut self, own: &Key) {
        // The first entry of the pending-write table, so that those below are not of index 0.
        let name = "write request that waits while the region is rekeyed";
        let request = self.request(name, own, self.write(0, 64));
        self.serve(&request);
        self.install_the_same_key_again();
        let name = "REMOTE_AUTHENTICATION_FAILURE to a write that has waited";
        self.answer(name, &reserved(), &request, &[]);
        self.completes_with(OpStatus::RemoteAuthenticationFailure);

        let command = Command { class: ClassOfService::Throughput, ..self.write(1001, 150) };
        let request = self.request("write request", own, command);
        self.serve(&request);
        let solicitation = self.answer("solicitation of a write", own, &request, &[]);
        for (part, range) in [("first", 200..264), ("second", 264..328), ("last", 328..350)] {
            let name = format!("solicited data, {part} part");
            let data = self.ask(&name, own, Some(&solicitation), &contents(range));
            self.serve(&data);
        }
        self.answer("acknowledgement of a write", own, &solicitation, &[]);
        self.completes_with(OpStatus::Ok);

        let name = "write request before the region is rekeyed";
        let request = self.request(name, own, self.write(4095, 1));
        self.serve(&request);
        let name = "solicitation before the region is rekeyed";
        let solicitation = self.answer(name, own, &request, &[]);
        let name = "solicited data after the region was rekeyed";
        let data = self.ask(name, own, Some(&solicitation), &contents(200..201));
        self.install_the_same_key_again();
        self.serve(&data);
        let name = "acknowledgement with REMOTE_AUTHENTICATION_FAILURE";
        self.answer(name, own, &solicitation, &[]);
        self.completes_with(OpStatus::RemoteAuthenticationFailure);
    }

    fn refused_mutations(&mut self, write: &Key, rekey: &Key) {
        let request = self.request("write request out of bounds", write, self.write(4033, 64));
        self.serve(&request);
        self.answer("REMOTE_OUT_OF_BOUNDS to a write", write, &request, &[]);
        self.completes_with(OpStatus::RemoteOutOfBounds);

        let forbidden = Command { remote_region: self.forbidden, ..self.rekey() };
        let request = self.request("rekey request without permission", rekey, forbidden);
        self.serve(&request);
        self.answer("REMOTE_PERMISSION_DENIED to a Rekey", rekey, &request, &[]);
        self.completes_with(OpStatus::RemotePermissionDenied);

        // The key of a write opens no Rekey.
        let request = self.request("rekey request under a key for writes", write, self.rekey());
        self.serve(&request);
        let name = "REMOTE_AUTHENTICATION_FAILURE to a Rekey";
        self.answer(name, &reserved(), &request, &[]);
        self.completes_with(OpStatus::RemoteAuthenticationFailure);
    }

    fn rekeys(&mut self, own: &Key) {
        let request = self.request("rekey request", own, self.rekey());
        self.serve(&request);
        let solicitation = self.answer("solicitation of a Rekey", own, &request, &[]);
        let name = "solicited data of a Rekey";
        let data = self.ask(name, own, Some(&solicitation), &next_region_key());
        self.serve(&data);
        // Still under the key that the request came under.
        self.answer("acknowledgement of a Rekey", own, &solicitation, &[]);
        self.completes_with(OpStatus::Ok);

        let next = self.key("READ after the Rekey", next_region_key(), OpType::Read);
        let name = "read request after the Rekey and the write";
        let request = self.request(name, &next, self.read(1001, 2));
        self.serve(&request);
        let name = "read response after the Rekey and the write";
        self.answer(name, &next, &request, &contents(200..202));
        self.completes_with(OpStatus::Ok);
    }

    /// Frames that came under the region's key before may not be served any longer, even though all
    /// keys stay the same.
    fn install_the_same_key_again(&mut self) {
        let key = RegionKey::from_bytes(region_key());
        self.responder.regions_mut().rekey(self.target, &key).expect("it is registered");
    }
}

pub(crate) fn reserved() -> Key {
    Key { name: "reserved".to_owned(), key: DerivedRegionKey::RESERVED }
}

pub(crate) fn wrong() -> Key {
    Key { name: "wrong".to_owned(), key: DerivedRegionKey::from_bytes(WRONG_KEY) }
}
