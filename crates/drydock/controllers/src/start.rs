//! Puts the controllers together and runs them.

use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::garbage::inventory::{Feed, Inventory};
use crate::machinery::cache::Kind;
use crate::machinery::informer::{Extent, Informer};
use crate::machinery::queue::{Next, Queue, QueueKey};
use crate::machinery::recorder::Recorder;
use crate::machinery::rest::{Error, Rest};
use crate::objects::resource::Resource;
use crate::{
    Options, SCHEDULER, WATCHER, cluster_roles, cron_job, daemon_set, deployment, disruption,
    endpoint_slices, endpoints, ephemeral, garbage, job, namespaces, node_lifecycle, pod_garbage, protection,
    replica_set, root_ca, scheduler, service_accounts, stateful_set, taint_eviction, volumes as binding,
};

/// Workers of the controllers that have little to do.
const FEW: usize = 4;

/// Has a queue worked by a controller, once these informers have listed, and the other thing is ready that it needs.
macro_rules! work {
    (
        $house:ident, $name:literal, $workers:expr, $queue:ident, $controller:ident, [$($informer:ident),*]
        $(, $other:expr)?
    ) => {{
        let controller = Arc::new($controller);
        let ready = vec![$($informer.cache.ready(),)* $($other)?];
        $house.work($name, $workers, $queue, ready, move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        });
    }};
}

/// Starts all controllers. They run until told to stop; the future ends when all of it has ended, and to drop
/// it stops them, too.
///
/// `clients` gives a client for a name: the name of a controller as Kubernetes names it, to be identified as
/// `system:serviceaccount:kube-system:NAME`, or [`WATCHER`], or [`SCHEDULER`]. Must be called within a tokio runtime.
pub fn run(
    clients: impl Fn(&'static str) -> Client,
    options: Options,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    let Options { root_ca, scheduler, clock, workers } = options;
    let watcher = clients(WATCHER);
    let rest = |name| Rest::new(clients(name));
    let voice = |name, rest: &Rest| Recorder::start(name, rest.clone(), clock.clone(), shutdown.clone());
    let mut house = House { tasks: JoinSet::new(), watched: Vec::new(), shutdown: shutdown.clone() };

    let mut pods = informer();
    let mut sets = informer();
    let mut deployments = informer();
    let mut stateful = informer();
    let mut daemons = informer();
    let mut revisions = informer();
    let mut claims = informer();
    let mut volumes = informer();
    let mut classes = informer();
    let mut jobs = informer();
    let mut cron_jobs = informer();
    let mut services = informer();
    let mut published = informer();
    let mut slices = informer();
    let mut budgets = informer();
    let mut spaces = informer();
    let mut accounts = informer();
    let mut maps = informer();
    let mut roles = informer();
    let mut definitions = informer();
    let inventory = Arc::new(Inventory::default());
    inventory.listen(&mut definitions);

    let (queue, own) = (Arc::default(), rest("deployment-controller"));
    let told = voice("deployment-controller", &own);
    let (all, now) = ((&mut deployments, &mut sets, &mut pods), clock.clone());
    let controller = deployment::Controller::new(own, told, now, all, &queue);
    work!(house, "deployment", workers, queue, controller, [deployments, sets, pods]);

    let (queue, own) = (Arc::default(), rest("replicaset-controller"));
    let told = voice("replicaset-controller", &own);
    let controller = replica_set::Controller::new(own, told, clock.clone(), &mut sets, &mut pods, &queue);
    work!(house, "replicaset", workers, queue, controller, [sets, pods]);

    let (queue, own) = (Arc::default(), rest("statefulset-controller"));
    let told = voice("statefulset-controller", &own);
    let (all, now) = ((&mut stateful, &mut pods, &mut claims, &mut revisions), clock.clone());
    let controller = stateful_set::Controller::new(own, told, now, all, &queue);
    work!(house, "statefulset", workers, queue, controller, [stateful, pods, claims, revisions]);

    let mut nodes = informer();
    let (queue, own) = (Arc::default(), rest("daemon-set-controller"));
    let told = voice("daemonset-controller", &own);
    let (all, now) = ((&mut daemons, &mut pods, &mut nodes, &mut revisions), clock.clone());
    let controller = daemon_set::Controller::new(own, told, now, all, &queue);
    work!(house, "daemonset", FEW, queue, controller, [daemons, pods, nodes, revisions]);

    let mut leases = informer();
    let (queue, own) = (Arc::default(), rest("node-controller"));
    let told = voice("node-controller", &own);
    let controller =
        node_lifecycle::Controller::new(own, told, clock.clone(), &mut nodes, &mut leases, &queue);
    work!(house, "node-lifecycle", FEW, queue, controller, [nodes, leases]);

    let (queue, own) = (Arc::default(), rest("node-controller"));
    let (told, now) = (voice("taint-eviction-controller", &own), clock.clone());
    let controller = taint_eviction::Controller::new(own, told, now, &mut pods, &mut nodes, &queue);
    work!(house, "taint-eviction", FEW, queue, controller, [pods, nodes]);

    let (queue, own) = (Arc::default(), rest("pod-garbage-collector"));
    let controller = pod_garbage::Controller::new(own, clock.clone(), &mut pods, &mut nodes, &queue);
    work!(house, "pod-garbage-collector", FEW, queue, controller, [pods, nodes]);

    let (queue, own) = (Arc::default(), rest("job-controller"));
    let told = voice("job-controller", &own);
    let controller = job::Controller::new(own.clone(), told, clock.clone(), &mut jobs, &mut pods, &queue);
    work!(house, "job", workers, queue, controller, [jobs, pods]);

    let queue = Arc::default();
    let controller = job::Orphans::new(own, &mut jobs, &mut pods, &queue);
    work!(house, "job-orphans", FEW, queue, controller, [jobs, pods]);

    let (queue, own) = (Arc::default(), rest("cronjob-controller"));
    let (told, now) = (voice("cronjob-controller", &own), clock.clone());
    let controller = cron_job::Controller::new(own, told, now, &mut cron_jobs, &mut jobs, &queue);
    work!(house, "cronjob", FEW, queue, controller, [cron_jobs, jobs]);

    let (queue, own) = (Arc::default(), rest("ttl-after-finished-controller"));
    let controller = job::expiry::Controller::new(own, clock.clone(), &mut jobs, &queue);
    work!(house, "ttl-after-finished", FEW, queue, controller, [jobs]);

    let (queue, own) = (Arc::default(), rest("pvc-protection-controller"));
    let controller = protection::Claims::new(own, &mut claims, &mut pods, &queue);
    work!(house, "pvc-protection", FEW, queue, controller, [claims, pods]);

    let (queue, own) = (Arc::default(), rest("pv-protection-controller"));
    let controller = protection::Volumes::new(own, &mut volumes, &queue);
    work!(house, "pv-protection", FEW, queue, controller, [volumes]);

    let (queue, own) = (Arc::default(), rest("ephemeral-volume-controller"));
    let told = voice("ephemeral_volume", &own);
    let controller = ephemeral::Controller::new(own, told, &mut pods, &mut claims, &queue);
    work!(house, "ephemeral-volume", FEW, queue, controller, [pods, claims]);

    let (queue, own) = (Arc::default(), rest("persistent-volume-binder"));
    let told = voice("persistentvolume-controller", &own);
    let voices = (told.clone(), voice("volume_expand", &rest("expand-controller")));
    let all = (&mut claims, &mut volumes, &mut classes, &mut pods);
    let controller = binding::Claims::new(own.clone(), voices, all, &queue);
    let claim_keys = queue.clone();
    work!(house, "persistentvolume-claims", FEW, queue, controller, [claims, volumes, classes, pods]);

    let queue = Arc::default();
    let controller = binding::Volumes::new(own, told, &mut claims, &mut volumes, (&queue, &claim_keys));
    work!(house, "persistentvolume-volumes", FEW, queue, controller, [claims, volumes]);

    let queue = Arc::default();
    let own = rest("endpoint-controller");
    let controller = endpoints::Controller::new(own, &mut services, &mut pods, &mut published, &queue);
    work!(house, "endpoint", FEW, queue, controller, [services, pods, published]);

    let queue = Arc::default();
    let own = rest("endpointslice-controller");
    let all = (&mut services, &mut pods, &mut nodes, &mut slices);
    let controller = endpoint_slices::selected::Controller::new(own, all, &queue);
    work!(house, "endpointslice", FEW, queue, controller, [services, pods, nodes, slices]);

    let (queue, own) = (Arc::default(), rest("endpointslicemirroring-controller"));
    let told = voice("endpoint-slice-mirroring-controller", &own);
    let all = (&mut published, &mut services, &mut slices);
    let controller = endpoint_slices::mirrored::Controller::new(own, told, all, &queue);
    work!(house, "endpointslicemirroring", FEW, queue, controller, [published, services, slices]);

    let (queue, own) = (Arc::default(), rest("disruption-controller"));
    let told = voice("controllermanager", &own);
    let (all, now) = ((&mut budgets, &mut pods, &mut sets, &mut deployments), clock.clone());
    let controller = disruption::Controller::new(own, told.clone(), now, all, inventory.clone(), &queue);
    let kinds = inventory.ready();
    work!(house, "disruption", FEW, queue, controller, [budgets, pods, sets, deployments], kinds);

    let queue = Arc::default();
    let controller = disruption::Overlaps::new(told, &mut budgets, &mut pods, &queue);
    work!(house, "disruption-overlaps", FEW, queue, controller, [budgets, pods]);

    let queue = Arc::default();
    let own = rest("service-account-controller");
    let controller = service_accounts::Controller::new(own, &mut spaces, &mut accounts, &queue);
    work!(house, "serviceaccount", FEW, queue, controller, [spaces, accounts]);

    if let Some(ca) = root_ca {
        let queue = Arc::default();
        let own = rest("root-ca-cert-publisher");
        let controller = root_ca::Controller::new(own, ca, &mut spaces, &mut maps, &queue);
        work!(house, "root-ca-certificate-publisher", FEW, queue, controller, [spaces, maps]);
    }

    if scheduler {
        let (queue, own) = (Arc::default(), rest(SCHEDULER));
        let told = voice(scheduler::NAME, &own);
        let storage = (&mut claims, &mut volumes, &mut classes);
        let (all, now) = (((&mut pods, &mut nodes, &mut spaces), storage), clock.clone());
        let controller = scheduler::Controller::new(own, told, now, all, &queue);
        work!(
            house,
            "scheduler",
            workers,
            queue,
            controller,
            [pods, nodes, spaces, claims, volumes, classes]
        );
    }

    let queue = Arc::default();
    let own = rest("clusterrole-aggregation-controller");
    let controller = cluster_roles::Controller::new(own, &mut roles, &queue);
    work!(house, "clusterrole-aggregation", 1, queue, controller, [roles]);

    let queue = Arc::default();
    let own = rest("namespace-controller");
    let controller = namespaces::Controller::new(own, clock.clone(), &mut spaces, inventory.clone(), &queue);
    let space_feed = controller.feed();
    work!(house, "namespace", FEW, queue, controller, [spaces]);

    let queue = Arc::default();
    let own = rest("generic-garbage-collector");
    let controller = garbage::Controller::new(own, inventory.clone(), &queue);
    let garbage_feed = controller.feed();
    let (listed, all_listed) = watch::channel(false);
    let feed: Feed = Arc::new(move |resource, before, after| {
        garbage_feed(resource, before, after);
        space_feed(resource, before, after);
    });
    let controller = Arc::new(controller);
    house.work("garbage-collector", workers, queue, vec![all_listed], move |uid| {
        let controller = controller.clone();
        async move { controller.reconcile(&uid).await }
    });

    house.watch(&watcher, &feed, pods);
    house.watch(&watcher, &feed, nodes);
    house.watch(&watcher, &feed, leases);
    house.watch(&watcher, &feed, daemons);
    house.watch(&watcher, &feed, sets);
    house.watch(&watcher, &feed, deployments);
    house.watch(&watcher, &feed, stateful);
    house.watch(&watcher, &feed, revisions);
    house.watch(&watcher, &feed, claims);
    house.watch(&watcher, &feed, volumes);
    house.watch(&watcher, &feed, classes);
    house.watch(&watcher, &feed, jobs);
    house.watch(&watcher, &feed, cron_jobs);
    house.watch(&watcher, &feed, services);
    house.watch(&watcher, &feed, published);
    house.watch(&watcher, &feed, slices);
    house.watch(&watcher, &feed, budgets);
    house.watch(&watcher, &feed, spaces);
    house.watch(&watcher, &feed, accounts);
    house.watch(&watcher, &feed, maps);
    house.watch(&watcher, &feed, roles);
    house.watch(&watcher, &feed, definitions);
    let House { mut tasks, watched, shutdown } = house;
    tasks.spawn(inventory.run(watcher, watched, feed, listed, shutdown));
    Box::pin(async move {
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the controllers ended");
            }
        }
    })
}

fn informer<T: Kind>() -> Informer<T> {
    Informer::new(T::resource().clone(), Extent::Whole)
}

/// What runs.
struct House {
    tasks: JoinSet<()>,
    /// The kinds that are watched as a whole, and when their first list is complete.
    watched: Vec<(Resource, watch::Receiver<bool>)>,
    shutdown: CancellationToken,
}

impl House {
    /// Has a queue worked once the caches it is decided on are complete.
    fn work<K, W, F>(
        &mut self,
        name: &'static str,
        workers: usize,
        queue: Arc<Queue<K>>,
        ready: Vec<watch::Receiver<bool>>,
        work: W,
    ) where
        K: QueueKey,
        W: Fn(K) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Next, Error>> + Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            let wait = async {
                for mut ready in ready {
                    // It fails only when the other side is gone, which is when everything stops.
                    let _ = ready.wait_for(|ready| *ready).await;
                }
            };
            if shutdown.run_until_cancelled(wait).await.is_some() {
                queue.run(name, workers, shutdown, work).await;
            }
        });
    }

    /// Follows a kind, and tells the feed as well.
    fn watch<T: Kind>(&mut self, client: &Client, feed: &Feed, mut informer: Informer<T>) {
        let feed = feed.clone();
        informer.on_change(move |change| {
            feed(T::resource(), change.before.map(|one| one.meta()), change.after.map(|one| one.meta()));
        });
        self.watched.push((T::resource().clone(), informer.cache.ready()));
        self.tasks.spawn(informer.run(client.clone(), self.shutdown.clone()));
    }
}
