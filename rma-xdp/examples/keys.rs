//! A service as one runs it, under tokio: others read its memory one-sided, by name, while it
//! changes. Its host is an argument, a policy says who may have keys, and a signal ends it.
//!
//! ```text
//! cargo run --example keys --features keys      all of it here, over UDP on loopback
//! keys serve xdp:eth1 192.0.2.2:7471 ids        on the server
//! keys read xdp:eth1 192.0.2.2:7471 ids         on a client
//! ```
//!
//! `ids` has what `rmactl ca issue` makes, in `server` and `client`, and on the server
//! `policy.toml`.

use core::{pin::pin, time::Duration};
use std::{env, fs, io, net::SocketAddr, path::Path, process::ExitCode, sync::Arc};

use rma_xdp::{
    BufferPool, Cells, Client, Host, HostConfig, OpType, Permissions, RegisteredRegion,
    keys::{
        Holder, KeyCache, KeyServer, KeyServerConfig, KeyedClient, KeyedError, KeyedRegion, OpSet,
        Schedule,
    },
    memory::CellLayout,
    transfer::{RetryPolicy, TransferOptions},
};
use tokio::{
    signal::{
        ctrl_c,
        unix::{SignalKind, signal},
    },
    time,
};

type Error = Box<dyn std::error::Error>;

/// The policy. A request that no rule allows is denied.
const POLICY: &str = r#"
[[allow]]
region = "shop/*"
identity = "spiffe://example.org/client"
ops = ["read", "fetch_add"]
"#;

const SECOND: Duration = Duration::from_secs(1);
/// How many prices there are, 8 bytes each. Whoever reads one finds it whole, or reads again.
const PRICES: u64 = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // What hosts and key services decide, open and refuse.
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Errors are sentences for people, with what to do next.
            eprintln!("keys: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => both_here().await,
        ["serve", host, keys, ids] => {
            let server = Server::open(host.parse()?, keys.parse()?, Path::new(ids))?;
            server.serve(told_to_end()).await
        }
        ["read", host, keys, ids] => {
            let reader = Reader::open(host.parse()?, keys.parse()?, Path::new(ids))?;
            for index in 0..PRICES {
                println!("{}", reader.price(index).await?);
            }
            Ok(())
        }
        _ => Err("keys [serve|read HOST KEYS-ADDRESS:PORT DIRECTORY]".into()),
    }
}

/// By Ctrl-C, or by what service managers send.
async fn told_to_end() {
    let mut terminate = signal(SignalKind::terminate()).expect("a handler can be installed");
    tokio::select! {
        _ = ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

struct Server {
    keys: KeyServer,
    host: Arc<Host>,
    prices: Cells,
}

impl Server {
    fn open(host: HostConfig, listen: SocketAddr, ids: &Path) -> Result<Self, Error> {
        let (host, layout) = (Arc::new(Host::open(host)?), CellLayout::new(8)?);
        let prices = host.register(layout.region_len(PRICES as usize), Permissions::READ)?;
        let hits = host.register(4096, Permissions::ATOMIC)?;
        let hourly = Schedule::every(3600 * SECOND);
        // All of them before anybody is answered: a client that waits for an owner which starts
        // again would be denied what comes a moment later.
        let regions: [(_, &RegisteredRegion, _); 2] =
            [("shop/prices", &prices, hourly), ("shop/hits", &hits, hourly)];
        let config = KeyServerConfig::new(listen, ids.join("server"), ids.join("policy.toml"));
        let keys = KeyServer::start_with(Arc::clone(&host), &config, &regions)?;
        Ok(Self { keys, host, prices: Cells::new(prices, layout) })
    }

    /// Until `end`. Nobody's reads wake this: it changes prices, and looks after itself.
    async fn serve(mut self, end: impl Future) -> Result<(), Error> {
        let (mut end, mut begun) = (pin!(end), 0_u64);
        let (mut change, mut look) = (time::interval(SECOND / 1000), time::interval(SECOND));
        loop {
            tokio::select! {
                _ = &mut end => break,
                _ = change.tick() => {
                    self.prices.store(begun % PRICES, &begun.to_le_bytes())?;
                    begun += 1;
                }
                // For a health check there is `Metrics::is_healthy`; with the feature
                // `metrics-endpoint`, both are served over HTTP.
                _ = look.tick() => for alert in self.host.metrics().alerts() {
                    tracing::warn!(%alert);
                },
            }
        }
        // And no more: clients outlast it until this is started again, or turn to another server.
        // `KeyServer::remove` would have them denied.
        drop(self.keys);
        Ok(())
    }
}

struct Reader {
    client: KeyedClient,
    layout: CellLayout,
    pool: BufferPool,
    prices: KeyedRegion,
    hits: KeyedRegion,
    _host: Host,
}

impl Reader {
    /// A client, most often on another host. Keys are bound to its host and process.
    fn open(host: HostConfig, keys: SocketAddr, ids: &Path) -> Result<Self, Error> {
        let (host, layout) = (Host::open(host)?, CellLayout::new(8)?);
        let holder = Holder { initiators: host.addresses(), pid: host.pid() };
        let grants = KeyCache::start(holder, ids.join("client"))?;
        let service = grants.source(vec![keys], "spiffe://example.org/server".parse()?)?;
        let region = |name: &str, op_type| {
            Ok::<_, Error>(grants.region(service, name.parse()?, OpSet::NONE.with(op_type))?)
        };
        let prices = region("shop/prices", OpType::Read)?;
        let hits = region("shop/hits", OpType::FetchAdd)?;
        // With a thread that polls, so its futures may be awaited in any task.
        let client = KeyedClient::new(Client::start(host.transfers(16)?)?, &grants);
        let pool = host.buffer_pool(64, layout.len() as u32)?;
        Ok(Self { client, layout, pool, prices, hits, _host: host })
    }

    /// There is no other server to ask, so one that starts again is waited for.
    fn patient() -> TransferOptions {
        let retry = RetryPolicy::DEFAULT.with(|it| it.outlast = Some(10 * SECOND));
        TransferOptions::new().retry(retry).timeout(10 * SECOND)
    }

    async fn price(&self, index: u64) -> Result<u64, KeyedError> {
        loop {
            // The first one fetches a key.
            let buf = self.pool.acquire().await;
            let read = self.client.read(&self.prices, self.layout.offset(index), buf);
            let (result, buf) = read.options(Self::patient()).await;
            result?;
            if let Some(price) = self.layout.value(&buf.to_vec()) {
                return Ok(u64::from_le_bytes(price.bytes.try_into().expect("it has 8 bytes")));
            }
        }
    }

    async fn hit(&self) -> Result<u64, KeyedError> {
        self.client.fetch_add(&self.hits, 0, 1, Self::patient()).await
    }
}

/// Both on this machine, while keys change.
async fn both_here() -> Result<(), Error> {
    let scratch = rma_lab::Scratch::new();
    let ids = scratch.path();
    credentials(ids)?;
    let server = Server::open("udp:127.0.0.36".parse()?, "127.0.0.1:0".parse()?, ids)?;
    let reader = Reader::open("udp:127.0.0.1".parse()?, server.keys.address(), ids)?;
    assert_eq!((reader.price(7).await?, reader.hit().await?), (0, 0));

    // The next ones are refused under the keys that the client has, fetch others, and go on.
    server.keys.rotate_now("shop/prices")?;
    server.keys.withdraw("shop/hits")?;
    assert_eq!((reader.price(7).await?, reader.hit().await?), (0, 1));

    let reads = async {
        while reader.price(7).await? == 0 {}
        println!("read and counted, before and after the keys were changed");
        Ok::<_, KeyedError>(())
    };
    // A future that is late is dropped, and its buffer comes back.
    let reads = async { time::timeout(10 * SECOND, reads).await.map(|read| read.expect("served")) };
    server.serve(reads).await
}

/// Makes what `rmactl ca init` and `rmactl ca issue` make.
fn credentials(directory: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose,
        SanType,
    };
    fs::write(directory.join("policy.toml"), POLICY)?;
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;
    for id in ["server", "client"] {
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://example.org/{id}");
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        let (key, directory) = (KeyPair::generate()?, directory.join(id));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("cert.pem"), params.signed_by(&key, &root)?.pem())?;
        fs::write(directory.join("bundle.pem"), root.pem())?;
        fs::write(directory.join("key.pem"), key.serialize_pem())?;
        fs::set_permissions(directory.join("key.pem"), fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}
