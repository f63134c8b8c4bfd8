"""The two tasks of the section that are programs, done beside the program that they are about.

`python gordon_tasks.py` runs gordon.py with its delete() and Checker.run() filled in; the explanation that
the first task asks for is in docs/gordon.md.
"""
import time

from kubernetes.client.rest import ApiException

import gordon
from gordon import client, crd_group, crds, namespace, pod_template, v1


def patient(react):
    """The program answers to an event with the object as it was then. Where that is not the newest any more,
    the server says so, and the event of the newest is on its way."""
    def reacts(crd):
        try:
            react(crd)
        except ApiException as error:
            if error.status != 409:
                raise
    return reacts


def remove(pod):
    try:
        v1.delete_namespaced_pod(pod, namespace, client.V1DeleteOptions())
    except ApiException as error:
        if error.status != 404:
            raise


def delete(crd):
    for pod in crd.get('state', {}).get('pods', []):
        print('[%s] Removing pod %s .' % (crd['metadata']['name'], pod))
        remove(pod)


def runs(pod):
    """The hint's get_namespaced_pod is called read_namespaced_pod."""
    try:
        found = v1.read_namespaced_pod(pod, namespace)
    except ApiException as error:
        if error.status == 404:
            return False
        raise
    return found.metadata.deletion_timestamp is None and found.status.phase not in ('Failed', 'Succeeded')


def check(crd):
    name, pods = crd['metadata']['name'], crd.get('state', {}).get('pods', [])
    lost = [pod for pod in pods if not runs(pod)]
    if not lost:
        return
    made = [v1.create_namespaced_pod(namespace, pod_template).metadata.name for _ in lost]
    kept = [pod for pod in pods if pod not in lost]
    try:
        crds.patch_namespaced_custom_object(crd_group, 'v1', namespace, 'gordons', name, {
            # Whoever changed it meanwhile is right: the next look is a second away.
            'metadata': {'resourceVersion': crd['metadata']['resourceVersion']},
            'state': {'pods': kept + made},
        })
    except ApiException as error:
        if error.status not in (404, 409):
            raise
        for pod in made:
            remove(pod)
        return
    for pod in lost:
        remove(pod)
    print('[%s] Replaced %s by %s' % (name, ', '.join(lost), ', '.join(made)))


class Checker(gordon.Checker):

    def run(self):
        while True:
            time.sleep(1)
            listed = crds.list_namespaced_custom_object(crd_group, 'v1', namespace, 'gordons')
            for crd in listed['items']:
                check(crd)


if __name__ == "__main__":
    gordon.deploy, gordon.change, gordon.delete = patient(gordon.deploy), patient(gordon.change), delete
    checker = Checker()
    checker.daemon = True
    checker.start()
    gordon.main()
