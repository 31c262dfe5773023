"""Correct programs: nothing may be said about them."""
import os, sys, threading, time
import torch, torch.distributed as dist, torch.nn as nn
def rings(rank, n, t):
    for i in range(20):
        if rank % 2 == 0: dist.send(t, (rank+1) % n); dist.recv(t, (rank-1) % n)
        else: 
            u = torch.empty(4); dist.recv(u, (rank-1) % n); dist.send(t, (rank+1) % n)
    ops = [dist.P2POp(dist.isend, torch.ones(3), (rank+1)%n), dist.P2POp(dist.irecv, torch.ones(3), (rank-1)%n)]
    for w in dist.batch_isend_irecv(ops): w.wait()
    if rank == 0:
        for i in range(1, n): 
            x = torch.zeros(2); dist.recv(x)
    else: dist.send(torch.ones(2), 0)
def collectives(rank, n, t):
    out = [torch.zeros(4) for _ in range(n)]
    dist.all_gather(out, t); dist.broadcast(t, src=n-1); dist.reduce(t, dst=0, op=dist.ReduceOp.MAX)
    dist.gather(t, out if rank == 0 else None, dst=0)
    dist.scatter(t, out if rank == 1 else None, src=1)
    dist.all_gather_into_tensor(torch.zeros(4*n), t)
    dist.reduce_scatter_tensor(torch.zeros(4), torch.ones(4*n)) if hasattr(dist,'reduce_scatter_tensor') else None
    splits=[rank+1]*n
    x = torch.ones(sum(splits)); y = torch.zeros(sum(range(1,n+1)))
    dist.all_to_all_single(y, x, output_split_sizes=list(range(1,n+1)), input_split_sizes=splits)
    objs = [None]*n; dist.all_gather_object(objs, {'rank': 'x'*rank*10}); 
    o=[rank, 'y']; dist.broadcast_object_list(o, src=1)
    dist.gather_object({'a':rank*'z'}, objs if rank==0 else None, dst=0)
    so=[None]; dist.scatter_object_list(so, [str(i)*i for i in range(n)] if rank==0 else None, src=0)
    dist.monitored_barrier(); dist.barrier()
    ws=[dist.all_reduce(torch.ones(10), async_op=True) for _ in range(30)]
    for w in reversed(ws): w.wait()
    dist.all_reduce(torch.ones(3), async_op=True)   # never waited for
    w=dist.all_reduce(torch.ones(3), async_op=True); 
    while not w.is_completed(): time.sleep(0.001)
def groups(rank, n, t):
    evens=dist.new_group(list(range(0,n,2)), group_desc='evens'); odds=dist.new_group(list(range(1,n,2)))
    g = odds if rank%2 else evens
    for _ in range(10*(rank%2+1)): dist.all_reduce(t, group=g)
    dist.broadcast(t, src=rank%2, group=g)
    for _ in range(3):
        h=dist.new_group([0,1])
        if rank<2: dist.all_reduce(t,group=h); dist.destroy_process_group(h)
def ddp(rank, n):
    m = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(50,200), nn.BatchNorm1d(200), nn.Linear(200,2)))
    o = torch.optim.SGD(m.parameters(), 0.01)
    for i in range(30):
        o.zero_grad(); m(torch.randn(8,50)).sum().backward(); o.step()
    with m.no_sync(): m(torch.randn(8,50)).sum().backward()
    with m.join(): 
        for i in range(5+rank): o.zero_grad(); m(torch.randn(8,50)).sum().backward(); o.step()
def threads(rank, n):
    gs=[dist.new_group(list(range(n))) for _ in range(3)]
    def work(g):
        for _ in range(50): dist.all_reduce(torch.ones(5), group=g)
    ts=[threading.Thread(target=work,args=(g,)) for g in gs]
    [x.start() for x in ts]; [x.join() for x in ts]
class D(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self,i): return torch.ones(3)*i
def main():
    dist.init_process_group("gloo"); rank,n=dist.get_rank(),dist.get_world_size(); t=torch.ones(4)
    rings(rank,n,torch.ones(4)); collectives(rank,n,torch.ones(4)); groups(rank,n,torch.ones(4)); ddp(rank,n); threads(rank,n)
    for batch in torch.utils.data.DataLoader(D(),num_workers=2,batch_size=4): dist.all_reduce(batch.sum())
    pid=os.fork()
    if pid==0: os._exit(0)
    os.waitpid(pid,0)
    if rank==0: time.sleep(3)
    p=torch.ones(3,requires_grad=True); p.register_hook(lambda g: dist.all_reduce(g.clone()))
    (p*2).sum().backward()
    f=dist.all_reduce(torch.ones(2),async_op=True).get_future().then(lambda f: f.value()[0].sum()); f.wait()
    dist.destroy_process_group()
    dist.init_process_group("gloo",init_method="tcp://127.0.0.1:"+str(int(os.environ['MASTER_PORT'])+1),rank=rank,world_size=n)
    dist.all_reduce(t); dist.barrier(); dist.destroy_process_group()
    print("fine")
if __name__=='__main__': main()
