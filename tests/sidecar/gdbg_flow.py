import time, json, os
from bench import *
from lifecycle_flow import outside
@test("gdbg", limit=200)
def gdbg(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("ok.test"), allow("203.0.113.9")))
    for m,t,b,tok,rem in (("GET","/policy",None,True,False),("GET","/policy",None,None,False),("GET","/policy",None,"x",False),("GET","/policy",None,"x",False),("GET","/policy",None,"x",False),("PUT","/policy",b"{",None,False),("PUT","/policy",b"{",None,False),("GET","/policy",None,"x",True),("GET","/policy",None,True,True)):
        a=time.monotonic(); r=s.ask(m,t,b,token=tok,remote=rem); print(m,t,b,tok,rem,r.status,round(time.monotonic()-a,3),flush=True)
    for i in range(70):
        a=time.monotonic(); r=s.ask("GET","/policy",None,token="x"); 
        if i%5==0: print(i,round(time.monotonic()-a,3),flush=True)
