//! The certificate that this side shows, and how long it is good.

use std::path::Path;

use rma_doctor::{Finding, path::Step};
use rma_keys::{
    io::clock,
    tls::{directory::Directory, trust::Side},
};

/// A week before it ends, in milliseconds: who has to be asked may be on holiday.
const SOON: i64 = 7 * 24 * 3600 * 1000;

/// Looks at the directory of a certificate and its key.
pub(super) fn examine(path: &Path) -> Finding {
    let step = Step { id: "identity", interface: None };
    let directory = path.display();
    let renew = format!("rmactl ca issue --renew --id IDENTITY --dir {directory}");
    let credentials = match Directory::open(path) {
        Ok((_, credentials)) => credentials,
        Err(why) => return step.mend("it cannot be used", why.to_string(), &renew),
    };
    let now = clock::now().wall;
    if let Err(why) = credentials.verify(Side::Client, now) {
        return step.mend("peers refuse it", why.to_string(), &renew);
    }
    let not_after = credentials.not_after();
    let left = not_after.unix_millis() - now.unix_millis();
    let found = format!("good until {not_after}");
    if left < SOON {
        let why = "it ends within a week, and nobody gets keys with it then";
        return step.mend(found, why, &renew);
    }
    step.ok(found, "peers take it, as far as its own authority says")
}
