//! A service and its log together: no record, no grant.

use std::path::Path;

use rma_core::op::OpType;

use super::{
    after, client,
    service::{request, service, wanted},
};
use crate::{
    audit::log::{Log, LogConfig, OnFull},
    message::reply::{Answer, Refusal, Reply},
    policy::Policy,
    recorded::Recorded,
};

/// Returns the answer when the disk is full.
fn answer(on_full: OnFull) -> (Recorded<Policy>, Reply) {
    let config = LogConfig { on_full, ..LogConfig::default() };
    let log = Log::open(Path::new("/dev/full"), config).unwrap();
    let mut recorded = Recorded::new(service(), log);
    let message = request(vec![wanted("kv/index", &[OpType::Read])]).encode(1);
    let reply = Reply::decode(&recorded.handle(after(1), &client(), &message)).unwrap();
    (recorded, reply)
}

#[test]
fn a_full_disk_gives_no_keys_unless_its_owner_has_said_so() {
    let (recorded, reply) = answer(OnFull::Refuse);
    assert!(matches!(reply, Reply::Refused(Refusal::NotNow { .. })), "{reply:?}");
    assert_eq!(
        (recorded.log().unwrap().counters().lost, recorded.service().counters().not_now),
        (1, 1)
    );
    let (recorded, reply) = answer(OnFull::Serve);
    let Reply::Answers(answers) = reply else { panic!("it was looked at") };
    assert!(matches!(answers[..], [Answer::Granted(_)]));
    assert_eq!(recorded.log().unwrap().counters().served_unrecorded, 1);
}
